from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorResponse(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class PbTablePath(_message.Message):
    __slots__ = ("database_name", "table_name")
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    database_name: str
    table_name: str
    def __init__(self, database_name: _Optional[str] = ..., table_name: _Optional[str] = ...) -> None: ...

class PbPhysicalTablePath(_message.Message):
    __slots__ = ("database_name", "table_name", "partition_name")
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    database_name: str
    table_name: str
    partition_name: str
    def __init__(self, database_name: _Optional[str] = ..., table_name: _Optional[str] = ..., partition_name: _Optional[str] = ...) -> None: ...

class PbTableBucket(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ...) -> None: ...

class PbKeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PbServerNode(_message.Message):
    __slots__ = ("node_id", "host", "port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    host: str
    port: int
    def __init__(self, node_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class CreateDatabaseRequest(_message.Message):
    __slots__ = ("database_name", "ignore_if_exists")
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_EXISTS_FIELD_NUMBER: _ClassVar[int]
    database_name: str
    ignore_if_exists: bool
    def __init__(self, database_name: _Optional[str] = ..., ignore_if_exists: _Optional[bool] = ...) -> None: ...

class CreateDatabaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropDatabaseRequest(_message.Message):
    __slots__ = ("database_name", "ignore_if_not_exists", "cascade")
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    CASCADE_FIELD_NUMBER: _ClassVar[int]
    database_name: str
    ignore_if_not_exists: bool
    cascade: bool
    def __init__(self, database_name: _Optional[str] = ..., ignore_if_not_exists: _Optional[bool] = ..., cascade: _Optional[bool] = ...) -> None: ...

class DropDatabaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDatabasesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDatabasesResponse(_message.Message):
    __slots__ = ("database_name",)
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    database_name: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, database_name: _Optional[_Iterable[str]] = ...) -> None: ...

class DatabaseExistsRequest(_message.Message):
    __slots__ = ("database_name",)
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    database_name: str
    def __init__(self, database_name: _Optional[str] = ...) -> None: ...

class DatabaseExistsResponse(_message.Message):
    __slots__ = ("exists",)
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    def __init__(self, exists: _Optional[bool] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("table_path", "table_json", "ignore_if_exists")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    TABLE_JSON_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_EXISTS_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    table_json: bytes
    ignore_if_exists: bool
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., table_json: _Optional[bytes] = ..., ignore_if_exists: _Optional[bool] = ...) -> None: ...

class CreateTableResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PbAlterConfig(_message.Message):
    __slots__ = ("config_key", "config_value", "op_type")
    CONFIG_KEY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_VALUE_FIELD_NUMBER: _ClassVar[int]
    OP_TYPE_FIELD_NUMBER: _ClassVar[int]
    config_key: str
    config_value: str
    op_type: int
    def __init__(self, config_key: _Optional[str] = ..., config_value: _Optional[str] = ..., op_type: _Optional[int] = ...) -> None: ...

class AlterTableRequest(_message.Message):
    __slots__ = ("table_path", "ignore_if_not_exists", "config_changes", "add_columns")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_CHANGES_FIELD_NUMBER: _ClassVar[int]
    ADD_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    ignore_if_not_exists: bool
    config_changes: _containers.RepeatedCompositeFieldContainer[PbAlterConfig]
    add_columns: _containers.RepeatedCompositeFieldContainer[PbAddColumn]
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., ignore_if_not_exists: _Optional[bool] = ..., config_changes: _Optional[_Iterable[_Union[PbAlterConfig, _Mapping]]] = ..., add_columns: _Optional[_Iterable[_Union[PbAddColumn, _Mapping]]] = ...) -> None: ...

class AlterTableResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PbAddColumn(_message.Message):
    __slots__ = ("column_name", "data_type_json", "comment", "column_position_type")
    COLUMN_NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_JSON_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    COLUMN_POSITION_TYPE_FIELD_NUMBER: _ClassVar[int]
    column_name: str
    data_type_json: bytes
    comment: str
    column_position_type: int
    def __init__(self, column_name: _Optional[str] = ..., data_type_json: _Optional[bytes] = ..., comment: _Optional[str] = ..., column_position_type: _Optional[int] = ...) -> None: ...

class DropTableRequest(_message.Message):
    __slots__ = ("table_path", "ignore_if_not_exists", "keep_lake")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    KEEP_LAKE_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    ignore_if_not_exists: bool
    keep_lake: bool
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., ignore_if_not_exists: _Optional[bool] = ..., keep_lake: _Optional[bool] = ...) -> None: ...

class DropTableResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTableInfoRequest(_message.Message):
    __slots__ = ("table_path",)
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ...) -> None: ...

class GetTableInfoResponse(_message.Message):
    __slots__ = ("table_id", "schema_id", "table_json", "created_time", "modified_time")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_JSON_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_TIME_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    schema_id: int
    table_json: bytes
    created_time: int
    modified_time: int
    def __init__(self, table_id: _Optional[int] = ..., schema_id: _Optional[int] = ..., table_json: _Optional[bytes] = ..., created_time: _Optional[int] = ..., modified_time: _Optional[int] = ...) -> None: ...

class GetTableSchemaRequest(_message.Message):
    __slots__ = ("table_path", "schema_id")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    schema_id: int
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., schema_id: _Optional[int] = ...) -> None: ...

class GetTableSchemaResponse(_message.Message):
    __slots__ = ("schema_id", "schema_json")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    schema_json: bytes
    def __init__(self, schema_id: _Optional[int] = ..., schema_json: _Optional[bytes] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = ("database_name",)
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    database_name: str
    def __init__(self, database_name: _Optional[str] = ...) -> None: ...

class ListTablesResponse(_message.Message):
    __slots__ = ("table_name",)
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    table_name: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table_name: _Optional[_Iterable[str]] = ...) -> None: ...

class TableExistsRequest(_message.Message):
    __slots__ = ("table_path",)
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ...) -> None: ...

class TableExistsResponse(_message.Message):
    __slots__ = ("exists",)
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    def __init__(self, exists: _Optional[bool] = ...) -> None: ...

class PbPartitionSpec(_message.Message):
    __slots__ = ("partition_key_values",)
    PARTITION_KEY_VALUES_FIELD_NUMBER: _ClassVar[int]
    partition_key_values: _containers.RepeatedCompositeFieldContainer[PbKeyValue]
    def __init__(self, partition_key_values: _Optional[_Iterable[_Union[PbKeyValue, _Mapping]]] = ...) -> None: ...

class PbPartitionInfo(_message.Message):
    __slots__ = ("partition_id", "partition_spec")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SPEC_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    partition_spec: PbPartitionSpec
    def __init__(self, partition_id: _Optional[int] = ..., partition_spec: _Optional[_Union[PbPartitionSpec, _Mapping]] = ...) -> None: ...

class CreatePartitionRequest(_message.Message):
    __slots__ = ("table_path", "partition_spec", "ignore_if_not_exists", "more_partition_specs")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SPEC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    MORE_PARTITION_SPECS_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    partition_spec: PbPartitionSpec
    ignore_if_not_exists: bool
    more_partition_specs: _containers.RepeatedCompositeFieldContainer[PbPartitionSpec]
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., partition_spec: _Optional[_Union[PbPartitionSpec, _Mapping]] = ..., ignore_if_not_exists: _Optional[bool] = ..., more_partition_specs: _Optional[_Iterable[_Union[PbPartitionSpec, _Mapping]]] = ...) -> None: ...

class CreatePartitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropPartitionRequest(_message.Message):
    __slots__ = ("table_path", "partition_spec", "ignore_if_not_exists", "drop_lake", "discard_untiered")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SPEC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    DROP_LAKE_FIELD_NUMBER: _ClassVar[int]
    DISCARD_UNTIERED_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    partition_spec: PbPartitionSpec
    ignore_if_not_exists: bool
    drop_lake: bool
    discard_untiered: bool
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., partition_spec: _Optional[_Union[PbPartitionSpec, _Mapping]] = ..., ignore_if_not_exists: _Optional[bool] = ..., drop_lake: _Optional[bool] = ..., discard_untiered: _Optional[bool] = ...) -> None: ...

class DropPartitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPartitionInfosRequest(_message.Message):
    __slots__ = ("table_path", "partial_partition_spec", "lost_at_time", "lossy_drops_from", "lossy_drops_after_time")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_PARTITION_SPEC_FIELD_NUMBER: _ClassVar[int]
    LOST_AT_TIME_FIELD_NUMBER: _ClassVar[int]
    LOSSY_DROPS_FROM_FIELD_NUMBER: _ClassVar[int]
    LOSSY_DROPS_AFTER_TIME_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    partial_partition_spec: PbPartitionSpec
    lost_at_time: int
    lossy_drops_from: int
    lossy_drops_after_time: int
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., partial_partition_spec: _Optional[_Union[PbPartitionSpec, _Mapping]] = ..., lost_at_time: _Optional[int] = ..., lossy_drops_from: _Optional[int] = ..., lossy_drops_after_time: _Optional[int] = ...) -> None: ...

class ListPartitionInfosResponse(_message.Message):
    __slots__ = ("partitions_info", "lost_partitions", "table_id", "lossy_drops", "newest_lossy_drop")
    PARTITIONS_INFO_FIELD_NUMBER: _ClassVar[int]
    LOST_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    LOSSY_DROPS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_LOSSY_DROP_FIELD_NUMBER: _ClassVar[int]
    partitions_info: _containers.RepeatedCompositeFieldContainer[PbPartitionInfo]
    lost_partitions: _containers.RepeatedCompositeFieldContainer[PbLostPartition]
    table_id: int
    lossy_drops: _containers.RepeatedCompositeFieldContainer[PbLossyDrop]
    newest_lossy_drop: int
    def __init__(self, partitions_info: _Optional[_Iterable[_Union[PbPartitionInfo, _Mapping]]] = ..., lost_partitions: _Optional[_Iterable[_Union[PbLostPartition, _Mapping]]] = ..., table_id: _Optional[int] = ..., lossy_drops: _Optional[_Iterable[_Union[PbLossyDrop, _Mapping]]] = ..., newest_lossy_drop: _Optional[int] = ...) -> None: ...

class PbLostPartition(_message.Message):
    __slots__ = ("partition_name", "dropped_time")
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TIME_FIELD_NUMBER: _ClassVar[int]
    partition_name: str
    dropped_time: int
    def __init__(self, partition_name: _Optional[str] = ..., dropped_time: _Optional[int] = ...) -> None: ...

class PbLossyDrop(_message.Message):
    __slots__ = ("number", "partition_id", "partition_name", "dropped_time", "lost_ranges", "from_time")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TIME_FIELD_NUMBER: _ClassVar[int]
    LOST_RANGES_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    number: int
    partition_id: int
    partition_name: str
    dropped_time: int
    lost_ranges: _containers.RepeatedCompositeFieldContainer[PbLostRange]
    from_time: int
    def __init__(self, number: _Optional[int] = ..., partition_id: _Optional[int] = ..., partition_name: _Optional[str] = ..., dropped_time: _Optional[int] = ..., lost_ranges: _Optional[_Iterable[_Union[PbLostRange, _Mapping]]] = ..., from_time: _Optional[int] = ...) -> None: ...

class PbLostRange(_message.Message):
    __slots__ = ("bucket_id", "start_offset", "stop_offset", "last_time")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STOP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    start_offset: int
    stop_offset: int
    last_time: int
    def __init__(self, bucket_id: _Optional[int] = ..., start_offset: _Optional[int] = ..., stop_offset: _Optional[int] = ..., last_time: _Optional[int] = ...) -> None: ...

class MetadataRequest(_message.Message):
    __slots__ = ("table_path", "partitions_path", "partitions_id")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_ID_FIELD_NUMBER: _ClassVar[int]
    table_path: _containers.RepeatedCompositeFieldContainer[PbTablePath]
    partitions_path: _containers.RepeatedCompositeFieldContainer[PbPhysicalTablePath]
    partitions_id: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, table_path: _Optional[_Iterable[_Union[PbTablePath, _Mapping]]] = ..., partitions_path: _Optional[_Iterable[_Union[PbPhysicalTablePath, _Mapping]]] = ..., partitions_id: _Optional[_Iterable[int]] = ...) -> None: ...

class MetadataResponse(_message.Message):
    __slots__ = ("coordinator_server", "tablet_servers", "table_metadata", "partition_metadata")
    COORDINATOR_SERVER_FIELD_NUMBER: _ClassVar[int]
    TABLET_SERVERS_FIELD_NUMBER: _ClassVar[int]
    TABLE_METADATA_FIELD_NUMBER: _ClassVar[int]
    PARTITION_METADATA_FIELD_NUMBER: _ClassVar[int]
    coordinator_server: PbServerNode
    tablet_servers: _containers.RepeatedCompositeFieldContainer[PbServerNode]
    table_metadata: _containers.RepeatedCompositeFieldContainer[PbTableMetadata]
    partition_metadata: _containers.RepeatedCompositeFieldContainer[PbPartitionMetadata]
    def __init__(self, coordinator_server: _Optional[_Union[PbServerNode, _Mapping]] = ..., tablet_servers: _Optional[_Iterable[_Union[PbServerNode, _Mapping]]] = ..., table_metadata: _Optional[_Iterable[_Union[PbTableMetadata, _Mapping]]] = ..., partition_metadata: _Optional[_Iterable[_Union[PbPartitionMetadata, _Mapping]]] = ...) -> None: ...

class PbTableMetadata(_message.Message):
    __slots__ = ("table_path", "table_id", "schema_id", "table_json", "bucket_metadata", "created_time", "modified_time")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_JSON_FIELD_NUMBER: _ClassVar[int]
    BUCKET_METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_TIME_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    table_id: int
    schema_id: int
    table_json: bytes
    bucket_metadata: _containers.RepeatedCompositeFieldContainer[PbBucketMetadata]
    created_time: int
    modified_time: int
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., table_id: _Optional[int] = ..., schema_id: _Optional[int] = ..., table_json: _Optional[bytes] = ..., bucket_metadata: _Optional[_Iterable[_Union[PbBucketMetadata, _Mapping]]] = ..., created_time: _Optional[int] = ..., modified_time: _Optional[int] = ...) -> None: ...

class PbPartitionMetadata(_message.Message):
    __slots__ = ("table_id", "partition_name", "partition_id", "bucket_metadata")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_METADATA_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_name: str
    partition_id: int
    bucket_metadata: _containers.RepeatedCompositeFieldContainer[PbBucketMetadata]
    def __init__(self, table_id: _Optional[int] = ..., partition_name: _Optional[str] = ..., partition_id: _Optional[int] = ..., bucket_metadata: _Optional[_Iterable[_Union[PbBucketMetadata, _Mapping]]] = ...) -> None: ...

class PbBucketMetadata(_message.Message):
    __slots__ = ("bucket_id", "leader_id", "replica_id", "leader_epoch")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    leader_id: int
    replica_id: _containers.RepeatedScalarFieldContainer[int]
    leader_epoch: int
    def __init__(self, bucket_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., replica_id: _Optional[_Iterable[int]] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class InitWriterRequest(_message.Message):
    __slots__ = ("table_path",)
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    table_path: _containers.RepeatedCompositeFieldContainer[PbTablePath]
    def __init__(self, table_path: _Optional[_Iterable[_Union[PbTablePath, _Mapping]]] = ...) -> None: ...

class InitWriterResponse(_message.Message):
    __slots__ = ("writer_id", "request_size_max")
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_SIZE_MAX_FIELD_NUMBER: _ClassVar[int]
    writer_id: int
    request_size_max: int
    def __init__(self, writer_id: _Optional[int] = ..., request_size_max: _Optional[int] = ...) -> None: ...

class ProduceLogRequest(_message.Message):
    __slots__ = ("acks", "table_id", "timeout_ms", "buckets_req")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    acks: int
    table_id: int
    timeout_ms: int
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbProduceLogReqForBucket]
    def __init__(self, acks: _Optional[int] = ..., table_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., buckets_req: _Optional[_Iterable[_Union[PbProduceLogReqForBucket, _Mapping]]] = ...) -> None: ...

class PbProduceLogReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "records")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    records: bytes
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class ProduceLogResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbProduceLogRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbProduceLogRespForBucket, _Mapping]]] = ...) -> None: ...

class PbProduceLogRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "base_offset", "end_offset")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    base_offset: int
    end_offset: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class FetchLogRequest(_message.Message):
    __slots__ = ("follower_server_id", "max_bytes", "tables_req", "max_wait_ms", "min_bytes", "enable_lake")
    FOLLOWER_SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLES_REQ_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENABLE_LAKE_FIELD_NUMBER: _ClassVar[int]
    follower_server_id: int
    max_bytes: int
    tables_req: _containers.RepeatedCompositeFieldContainer[PbFetchLogReqForTable]
    max_wait_ms: int
    min_bytes: int
    enable_lake: bool
    def __init__(self, follower_server_id: _Optional[int] = ..., max_bytes: _Optional[int] = ..., tables_req: _Optional[_Iterable[_Union[PbFetchLogReqForTable, _Mapping]]] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., enable_lake: _Optional[bool] = ...) -> None: ...

class PbFetchLogReqForTable(_message.Message):
    __slots__ = ("table_id", "projection_pushdown_enabled", "projected_fields", "buckets_req", "previous_offsets", "small_batches_whole", "previous_offsets_only")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_PUSHDOWN_ENABLED_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SMALL_BATCHES_WHOLE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OFFSETS_ONLY_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    projection_pushdown_enabled: bool
    projected_fields: _containers.RepeatedScalarFieldContainer[int]
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbFetchLogReqForBucket]
    previous_offsets: bool
    small_batches_whole: bool
    previous_offsets_only: bool
    def __init__(self, table_id: _Optional[int] = ..., projection_pushdown_enabled: _Optional[bool] = ..., projected_fields: _Optional[_Iterable[int]] = ..., buckets_req: _Optional[_Iterable[_Union[PbFetchLogReqForBucket, _Mapping]]] = ..., previous_offsets: _Optional[bool] = ..., small_batches_whole: _Optional[bool] = ..., previous_offsets_only: _Optional[bool] = ...) -> None: ...

class PbFetchLogReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "fetch_offset", "max_fetch_bytes", "stop_offset")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_FETCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    STOP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    fetch_offset: int
    max_fetch_bytes: int
    stop_offset: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., max_fetch_bytes: _Optional[int] = ..., stop_offset: _Optional[int] = ...) -> None: ...

class FetchLogResponse(_message.Message):
    __slots__ = ("tables_resp",)
    TABLES_RESP_FIELD_NUMBER: _ClassVar[int]
    tables_resp: _containers.RepeatedCompositeFieldContainer[PbFetchLogRespForTable]
    def __init__(self, tables_resp: _Optional[_Iterable[_Union[PbFetchLogRespForTable, _Mapping]]] = ...) -> None: ...

class PbFetchLogRespForTable(_message.Message):
    __slots__ = ("table_id", "buckets_resp")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbFetchLogRespForBucket]
    def __init__(self, table_id: _Optional[int] = ..., buckets_resp: _Optional[_Iterable[_Union[PbFetchLogRespForBucket, _Mapping]]] = ...) -> None: ...

class PbFetchLogRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "high_watermark", "log_start_offset", "remote_log_fetch_info", "records", "lake_log_fetch_info", "previous_offsets", "all_columns", "previous_offsets_start")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_FETCH_INFO_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAKE_LOG_FETCH_INFO_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ALL_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OFFSETS_START_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    high_watermark: int
    log_start_offset: int
    remote_log_fetch_info: PbRemoteLogFetchInfo
    records: bytes
    lake_log_fetch_info: PbLakeLogFetchInfo
    previous_offsets: bytes
    all_columns: bool
    previous_offsets_start: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., remote_log_fetch_info: _Optional[_Union[PbRemoteLogFetchInfo, _Mapping]] = ..., records: _Optional[bytes] = ..., lake_log_fetch_info: _Optional[_Union[PbLakeLogFetchInfo, _Mapping]] = ..., previous_offsets: _Optional[bytes] = ..., all_columns: _Optional[bool] = ..., previous_offsets_start: _Optional[int] = ...) -> None: ...

class PbLakeLogFetchInfo(_message.Message):
    __slots__ = ("snapshot_id", "log_end_offset")
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: int
    log_end_offset: int
    def __init__(self, snapshot_id: _Optional[int] = ..., log_end_offset: _Optional[int] = ...) -> None: ...

class PbRemoteLogFetchInfo(_message.Message):
    __slots__ = ("remote_log_tablet_dir", "partition_name", "remote_log_segments", "first_start_pos")
    REMOTE_LOG_TABLET_DIR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_START_POS_FIELD_NUMBER: _ClassVar[int]
    remote_log_tablet_dir: str
    partition_name: str
    remote_log_segments: _containers.RepeatedCompositeFieldContainer[PbRemoteLogSegment]
    first_start_pos: int
    def __init__(self, remote_log_tablet_dir: _Optional[str] = ..., partition_name: _Optional[str] = ..., remote_log_segments: _Optional[_Iterable[_Union[PbRemoteLogSegment, _Mapping]]] = ..., first_start_pos: _Optional[int] = ...) -> None: ...

class PbRemoteLogSegment(_message.Message):
    __slots__ = ("remote_log_segment_id", "remote_log_start_offset", "remote_log_end_offset", "segment_size_in_bytes", "max_timestamp")
    REMOTE_LOG_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_SIZE_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    remote_log_segment_id: str
    remote_log_start_offset: int
    remote_log_end_offset: int
    segment_size_in_bytes: int
    max_timestamp: int
    def __init__(self, remote_log_segment_id: _Optional[str] = ..., remote_log_start_offset: _Optional[int] = ..., remote_log_end_offset: _Optional[int] = ..., segment_size_in_bytes: _Optional[int] = ..., max_timestamp: _Optional[int] = ...) -> None: ...

class PutKvRequest(_message.Message):
    __slots__ = ("acks", "table_id", "timeout_ms", "target_columns", "buckets_req")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TARGET_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    acks: int
    table_id: int
    timeout_ms: int
    target_columns: _containers.RepeatedScalarFieldContainer[int]
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbPutKvReqForBucket]
    def __init__(self, acks: _Optional[int] = ..., table_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., target_columns: _Optional[_Iterable[int]] = ..., buckets_req: _Optional[_Iterable[_Union[PbPutKvReqForBucket, _Mapping]]] = ...) -> None: ...

class PbPutKvReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "records")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    records: bytes
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class PutKvResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbPutKvRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbPutKvRespForBucket, _Mapping]]] = ...) -> None: ...

class PbPutKvRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "log_end_offset", "base_offset", "end_offset")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    log_end_offset: int
    base_offset: int
    end_offset: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("table_id", "buckets_req", "projected_fields")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbLookupReqForBucket]
    projected_fields: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, table_id: _Optional[int] = ..., buckets_req: _Optional[_Iterable[_Union[PbLookupReqForBucket, _Mapping]]] = ..., projected_fields: _Optional[_Iterable[int]] = ...) -> None: ...

class PbLookupReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "key_records")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    key_records: bytes
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., key_records: _Optional[bytes] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbLookupRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbLookupRespForBucket, _Mapping]]] = ...) -> None: ...

class PbLookupRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "found", "records", "schema_id")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    found: bytes
    records: bytes
    schema_id: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., found: _Optional[bytes] = ..., records: _Optional[bytes] = ..., schema_id: _Optional[int] = ...) -> None: ...

class PrefixLookupRequest(_message.Message):
    __slots__ = ("table_id", "buckets_req", "projected_fields")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbPrefixLookupReqForBucket]
    projected_fields: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, table_id: _Optional[int] = ..., buckets_req: _Optional[_Iterable[_Union[PbPrefixLookupReqForBucket, _Mapping]]] = ..., projected_fields: _Optional[_Iterable[int]] = ...) -> None: ...

class PbPrefixLookupReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "key_records")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    key_records: bytes
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., key_records: _Optional[bytes] = ...) -> None: ...

class PrefixLookupResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbPrefixLookupRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbPrefixLookupRespForBucket, _Mapping]]] = ...) -> None: ...

class PbPrefixLookupRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "counts", "records", "schema_id")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    counts: bytes
    records: bytes
    schema_id: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., counts: _Optional[bytes] = ..., records: _Optional[bytes] = ..., schema_id: _Optional[int] = ...) -> None: ...

class LimitScanRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "limit")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    limit: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class LimitScanResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "is_log_table", "records", "schema_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IS_LOG_TABLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    is_log_table: bool
    records: bytes
    schema_id: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., is_log_table: _Optional[bool] = ..., records: _Optional[bytes] = ..., schema_id: _Optional[int] = ...) -> None: ...

class ScanKvRequest(_message.Message):
    __slots__ = ("scanner_id", "bucket_scan_req", "call_seq_id", "batch_size_bytes", "close_scanner")
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_SCAN_REQ_FIELD_NUMBER: _ClassVar[int]
    CALL_SEQ_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLOSE_SCANNER_FIELD_NUMBER: _ClassVar[int]
    scanner_id: bytes
    bucket_scan_req: PbScanReqForBucket
    call_seq_id: int
    batch_size_bytes: int
    close_scanner: bool
    def __init__(self, scanner_id: _Optional[bytes] = ..., bucket_scan_req: _Optional[_Union[PbScanReqForBucket, _Mapping]] = ..., call_seq_id: _Optional[int] = ..., batch_size_bytes: _Optional[int] = ..., close_scanner: _Optional[bool] = ...) -> None: ...

class PbScanReqForBucket(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "projected_fields", "start_offset")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    projected_fields: _containers.RepeatedScalarFieldContainer[int]
    start_offset: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., projected_fields: _Optional[_Iterable[int]] = ..., start_offset: _Optional[int] = ...) -> None: ...

class ScanKvResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "scanner_id", "has_more_results", "records", "log_offset", "schema_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    scanner_id: bytes
    has_more_results: bool
    records: bytes
    log_offset: int
    schema_id: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., scanner_id: _Optional[bytes] = ..., has_more_results: _Optional[bool] = ..., records: _Optional[bytes] = ..., log_offset: _Optional[int] = ..., schema_id: _Optional[int] = ...) -> None: ...

class CommitKvSnapshotRequest(_message.Message):
    __slots__ = ("completed_snapshot", "coordinator_epoch", "bucket_leader_epoch")
    COMPLETED_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BUCKET_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    completed_snapshot: bytes
    coordinator_epoch: int
    bucket_leader_epoch: int
    def __init__(self, completed_snapshot: _Optional[bytes] = ..., coordinator_epoch: _Optional[int] = ..., bucket_leader_epoch: _Optional[int] = ...) -> None: ...

class CommitKvSnapshotResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLatestKvSnapshotsRequest(_message.Message):
    __slots__ = ("table_path", "partition_name")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    partition_name: str
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., partition_name: _Optional[str] = ...) -> None: ...

class GetLatestKvSnapshotsResponse(_message.Message):
    __slots__ = ("table_id", "partition_id", "latest_snapshots")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LATEST_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    latest_snapshots: _containers.RepeatedCompositeFieldContainer[PbKvSnapshot]
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., latest_snapshots: _Optional[_Iterable[_Union[PbKvSnapshot, _Mapping]]] = ...) -> None: ...

class PbKvSnapshot(_message.Message):
    __slots__ = ("bucket_id", "snapshot_id", "log_offset")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    snapshot_id: int
    log_offset: int
    def __init__(self, bucket_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., log_offset: _Optional[int] = ...) -> None: ...

class GetKvSnapshotMetadataRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "snapshot_id")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    snapshot_id: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ...) -> None: ...

class GetKvSnapshotMetadataResponse(_message.Message):
    __slots__ = ("log_offset", "snapshot_files")
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FILES_FIELD_NUMBER: _ClassVar[int]
    log_offset: int
    snapshot_files: _containers.RepeatedCompositeFieldContainer[PbRemotePathAndLocalFile]
    def __init__(self, log_offset: _Optional[int] = ..., snapshot_files: _Optional[_Iterable[_Union[PbRemotePathAndLocalFile, _Mapping]]] = ...) -> None: ...

class PbRemotePathAndLocalFile(_message.Message):
    __slots__ = ("remote_path", "local_file_name")
    REMOTE_PATH_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    remote_path: str
    local_file_name: str
    def __init__(self, remote_path: _Optional[str] = ..., local_file_name: _Optional[str] = ...) -> None: ...

class GetFileSystemSecurityTokenRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetFileSystemSecurityTokenResponse(_message.Message):
    __slots__ = ("schema", "token", "expiration_time", "addition_info")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIME_FIELD_NUMBER: _ClassVar[int]
    ADDITION_INFO_FIELD_NUMBER: _ClassVar[int]
    schema: str
    token: bytes
    expiration_time: int
    addition_info: _containers.RepeatedCompositeFieldContainer[PbKeyValue]
    def __init__(self, schema: _Optional[str] = ..., token: _Optional[bytes] = ..., expiration_time: _Optional[int] = ..., addition_info: _Optional[_Iterable[_Union[PbKeyValue, _Mapping]]] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("follower_server_id", "offset_type", "table_id", "partition_id", "bucket_id", "startTimestamp", "enable_lake", "durable", "raise_clock", "local_only")
    FOLLOWER_SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_TYPE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    STARTTIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ENABLE_LAKE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    RAISE_CLOCK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    follower_server_id: int
    offset_type: int
    table_id: int
    partition_id: int
    bucket_id: _containers.RepeatedScalarFieldContainer[int]
    startTimestamp: int
    enable_lake: bool
    durable: bool
    raise_clock: bool
    local_only: bool
    def __init__(self, follower_server_id: _Optional[int] = ..., offset_type: _Optional[int] = ..., table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[_Iterable[int]] = ..., startTimestamp: _Optional[int] = ..., enable_lake: _Optional[bool] = ..., durable: _Optional[bool] = ..., raise_clock: _Optional[bool] = ..., local_only: _Optional[bool] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbListOffsetsRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbListOffsetsRespForBucket, _Mapping]]] = ...) -> None: ...

class PbListOffsetsRespForBucket(_message.Message):
    __slots__ = ("bucket_id", "error_code", "error_message", "offset", "lake_snapshot_id", "timestamp")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAKE_SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    error_code: int
    error_message: str
    offset: int
    lake_snapshot_id: int
    timestamp: int
    def __init__(self, bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., offset: _Optional[int] = ..., lake_snapshot_id: _Optional[int] = ..., timestamp: _Optional[int] = ...) -> None: ...

class DescribeBucketsRequest(_message.Message):
    __slots__ = ("table_id",)
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    def __init__(self, table_id: _Optional[int] = ...) -> None: ...

class DescribeBucketsResponse(_message.Message):
    __slots__ = ("buckets",)
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[PbBucketDescription]
    def __init__(self, buckets: _Optional[_Iterable[_Union[PbBucketDescription, _Mapping]]] = ...) -> None: ...

class PbBucketDescription(_message.Message):
    __slots__ = ("table_bucket", "known", "error")
    TABLE_BUCKET_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    table_bucket: PbTableBucket
    known: PbKnownBucket
    error: PbBucketError
    def __init__(self, table_bucket: _Optional[_Union[PbTableBucket, _Mapping]] = ..., known: _Optional[_Union[PbKnownBucket, _Mapping]] = ..., error: _Optional[_Union[PbBucketError, _Mapping]] = ...) -> None: ...

class PbBucketError(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class PbKnownBucket(_message.Message):
    __slots__ = ("start_offset", "start_error", "log_start_offset", "log_end_offset", "high_watermark", "durable_offset", "size_in_bytes", "segments", "max_timestamp", "lake_snapshot_id", "lake_log_end_offset", "warning", "remote_log_start_offset", "remote_log_end_offset", "row_count", "memory_in_bytes", "kv_snapshot_id", "kv_snapshot_log_offset", "remote_size_in_bytes", "given_up", "lake_log_start_offset")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LAKE_SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LAKE_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    KV_SNAPSHOT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SIZE_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    LAKE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    start_error: PbBucketError
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    durable_offset: int
    size_in_bytes: int
    segments: int
    max_timestamp: int
    lake_snapshot_id: int
    lake_log_end_offset: int
    warning: str
    remote_log_start_offset: int
    remote_log_end_offset: int
    row_count: int
    memory_in_bytes: int
    kv_snapshot_id: int
    kv_snapshot_log_offset: int
    remote_size_in_bytes: int
    given_up: _containers.RepeatedCompositeFieldContainer[PbGivenUpRange]
    lake_log_start_offset: int
    def __init__(self, start_offset: _Optional[int] = ..., start_error: _Optional[_Union[PbBucketError, _Mapping]] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., durable_offset: _Optional[int] = ..., size_in_bytes: _Optional[int] = ..., segments: _Optional[int] = ..., max_timestamp: _Optional[int] = ..., lake_snapshot_id: _Optional[int] = ..., lake_log_end_offset: _Optional[int] = ..., warning: _Optional[str] = ..., remote_log_start_offset: _Optional[int] = ..., remote_log_end_offset: _Optional[int] = ..., row_count: _Optional[int] = ..., memory_in_bytes: _Optional[int] = ..., kv_snapshot_id: _Optional[int] = ..., kv_snapshot_log_offset: _Optional[int] = ..., remote_size_in_bytes: _Optional[int] = ..., given_up: _Optional[_Iterable[_Union[PbGivenUpRange, _Mapping]]] = ..., lake_log_start_offset: _Optional[int] = ...) -> None: ...

class PbGivenUpRange(_message.Message):
    __slots__ = ("start_offset", "stop_offset", "lost_start_offset", "time")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STOP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOST_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    stop_offset: int
    lost_start_offset: int
    time: int
    def __init__(self, start_offset: _Optional[int] = ..., stop_offset: _Optional[int] = ..., lost_start_offset: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class LocateRecordRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "log_offset")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    log_offset: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., log_offset: _Optional[int] = ...) -> None: ...

class LocateRecordResponse(_message.Message):
    __slots__ = ("local", "remote", "remote_error")
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    REMOTE_ERROR_FIELD_NUMBER: _ClassVar[int]
    local: PbSegmentPlace
    remote: PbSegmentPlace
    remote_error: str
    def __init__(self, local: _Optional[_Union[PbSegmentPlace, _Mapping]] = ..., remote: _Optional[_Union[PbSegmentPlace, _Mapping]] = ..., remote_error: _Optional[str] = ...) -> None: ...

class PbSegmentPlace(_message.Message):
    __slots__ = ("file", "segment_base_offset", "segment_end_offset", "position", "batch_base_offset", "batch_end_offset", "batch_size_in_bytes", "timestamp", "remote_log_segment_id")
    FILE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCH_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    file: str
    segment_base_offset: int
    segment_end_offset: int
    position: int
    batch_base_offset: int
    batch_end_offset: int
    batch_size_in_bytes: int
    timestamp: int
    remote_log_segment_id: str
    def __init__(self, file: _Optional[str] = ..., segment_base_offset: _Optional[int] = ..., segment_end_offset: _Optional[int] = ..., position: _Optional[int] = ..., batch_base_offset: _Optional[int] = ..., batch_end_offset: _Optional[int] = ..., batch_size_in_bytes: _Optional[int] = ..., timestamp: _Optional[int] = ..., remote_log_segment_id: _Optional[str] = ...) -> None: ...

class DescribeDamageRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ...) -> None: ...

class DescribeDamageResponse(_message.Message):
    __slots__ = ("start_offset", "log_start_offset", "log_end_offset", "size_in_bytes", "ranges", "remote_log_end_offset", "lake_log_end_offset", "rows_offset", "given_up", "lake_rows_offset", "is_gone")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAKE_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    LAKE_ROWS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_GONE_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    log_start_offset: int
    log_end_offset: int
    size_in_bytes: int
    ranges: _containers.RepeatedCompositeFieldContainer[PbDamagedRange]
    remote_log_end_offset: int
    lake_log_end_offset: int
    rows_offset: int
    given_up: _containers.RepeatedCompositeFieldContainer[PbGivenUpRange]
    lake_rows_offset: int
    is_gone: bool
    def __init__(self, start_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., size_in_bytes: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[PbDamagedRange, _Mapping]]] = ..., remote_log_end_offset: _Optional[int] = ..., lake_log_end_offset: _Optional[int] = ..., rows_offset: _Optional[int] = ..., given_up: _Optional[_Iterable[_Union[PbGivenUpRange, _Mapping]]] = ..., lake_rows_offset: _Optional[int] = ..., is_gone: _Optional[bool] = ...) -> None: ...

class PbDamagedRange(_message.Message):
    __slots__ = ("file", "start_offset", "stop_offset", "time_before", "time_after")
    FILE_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STOP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TIME_AFTER_FIELD_NUMBER: _ClassVar[int]
    file: str
    start_offset: int
    stop_offset: int
    time_before: int
    time_after: int
    def __init__(self, file: _Optional[str] = ..., start_offset: _Optional[int] = ..., stop_offset: _Optional[int] = ..., time_before: _Optional[int] = ..., time_after: _Optional[int] = ...) -> None: ...

class SendRowsRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "log_offset", "part", "records")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    log_offset: int
    part: int
    records: bytes
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., log_offset: _Optional[int] = ..., part: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class SendRowsResponse(_message.Message):
    __slots__ = ("row_count",)
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    row_count: int
    def __init__(self, row_count: _Optional[int] = ...) -> None: ...

class GiveUpRangeRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "start_offset", "stop_offset", "discard_before", "rows_offset", "row_count")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STOP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISCARD_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ROWS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    start_offset: int
    stop_offset: int
    discard_before: bool
    rows_offset: int
    row_count: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., start_offset: _Optional[int] = ..., stop_offset: _Optional[int] = ..., discard_before: _Optional[bool] = ..., rows_offset: _Optional[int] = ..., row_count: _Optional[int] = ...) -> None: ...

class GiveUpRangeResponse(_message.Message):
    __slots__ = ("log_start_offset",)
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    log_start_offset: int
    def __init__(self, log_start_offset: _Optional[int] = ...) -> None: ...

class RegisterTabletServerRequest(_message.Message):
    __slots__ = ("server_id", "host", "port", "process_id", "opening", "opened_epoch", "metrics_port", "heartbeat")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    OPENED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METRICS_PORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    server_id: int
    host: str
    port: int
    process_id: int
    opening: bool
    opened_epoch: int
    metrics_port: int
    heartbeat: bool
    def __init__(self, server_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., process_id: _Optional[int] = ..., opening: _Optional[bool] = ..., opened_epoch: _Optional[int] = ..., metrics_port: _Optional[int] = ..., heartbeat: _Optional[bool] = ...) -> None: ...

class RegisterTabletServerResponse(_message.Message):
    __slots__ = ("coordinator_epoch", "buckets", "lake_offsets", "remote_owner")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    LAKE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    REMOTE_OWNER_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbNotifyLeaderAndIsrReqForBucket]
    lake_offsets: _containers.RepeatedCompositeFieldContainer[PbNotifyLakeTableOffsetReqForBucket]
    remote_owner: str
    def __init__(self, coordinator_epoch: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbNotifyLeaderAndIsrReqForBucket, _Mapping]]] = ..., lake_offsets: _Optional[_Iterable[_Union[PbNotifyLakeTableOffsetReqForBucket, _Mapping]]] = ..., remote_owner: _Optional[str] = ...) -> None: ...

class ReportBucketsRequest(_message.Message):
    __slots__ = ("coordinator_epoch", "buckets")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbBucketReport]
    def __init__(self, coordinator_epoch: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbBucketReport, _Mapping]]] = ...) -> None: ...

class PbBucketReport(_message.Message):
    __slots__ = ("table_bucket", "durable_offset")
    TABLE_BUCKET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    table_bucket: PbTableBucket
    durable_offset: int
    def __init__(self, table_bucket: _Optional[_Union[PbTableBucket, _Mapping]] = ..., durable_offset: _Optional[int] = ...) -> None: ...

class ReportBucketsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NotifyLeaderAndIsrRequest(_message.Message):
    __slots__ = ("coordinator_epoch", "notify_buckets_leader_req")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_BUCKETS_LEADER_REQ_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    notify_buckets_leader_req: _containers.RepeatedCompositeFieldContainer[PbNotifyLeaderAndIsrReqForBucket]
    def __init__(self, coordinator_epoch: _Optional[int] = ..., notify_buckets_leader_req: _Optional[_Iterable[_Union[PbNotifyLeaderAndIsrReqForBucket, _Mapping]]] = ...) -> None: ...

class NotifyLeaderAndIsrResponse(_message.Message):
    __slots__ = ("notify_buckets_leader_resp",)
    NOTIFY_BUCKETS_LEADER_RESP_FIELD_NUMBER: _ClassVar[int]
    notify_buckets_leader_resp: _containers.RepeatedCompositeFieldContainer[PbNotifyLeaderAndIsrRespForBucket]
    def __init__(self, notify_buckets_leader_resp: _Optional[_Iterable[_Union[PbNotifyLeaderAndIsrRespForBucket, _Mapping]]] = ...) -> None: ...

class PbNotifyLeaderAndIsrReqForBucket(_message.Message):
    __slots__ = ("physical_table_path", "table_bucket", "leader", "leader_epoch", "table_json", "schema_id", "schemas", "durable_offset", "identity", "adopt_unmarked")
    PHYSICAL_TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    TABLE_BUCKET_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_JSON_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ADOPT_UNMARKED_FIELD_NUMBER: _ClassVar[int]
    physical_table_path: PbPhysicalTablePath
    table_bucket: PbTableBucket
    leader: int
    leader_epoch: int
    table_json: bytes
    schema_id: int
    schemas: _containers.RepeatedCompositeFieldContainer[PbSchema]
    durable_offset: int
    identity: str
    adopt_unmarked: bool
    def __init__(self, physical_table_path: _Optional[_Union[PbPhysicalTablePath, _Mapping]] = ..., table_bucket: _Optional[_Union[PbTableBucket, _Mapping]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., table_json: _Optional[bytes] = ..., schema_id: _Optional[int] = ..., schemas: _Optional[_Iterable[_Union[PbSchema, _Mapping]]] = ..., durable_offset: _Optional[int] = ..., identity: _Optional[str] = ..., adopt_unmarked: _Optional[bool] = ...) -> None: ...

class PbSchema(_message.Message):
    __slots__ = ("schema_id", "schema_json")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    schema_json: bytes
    def __init__(self, schema_id: _Optional[int] = ..., schema_json: _Optional[bytes] = ...) -> None: ...

class PbNotifyLeaderAndIsrRespForBucket(_message.Message):
    __slots__ = ("table_bucket", "error_code", "error_message")
    TABLE_BUCKET_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    table_bucket: PbTableBucket
    error_code: int
    error_message: str
    def __init__(self, table_bucket: _Optional[_Union[PbTableBucket, _Mapping]] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class StopReplicaRequest(_message.Message):
    __slots__ = ("coordinator_epoch", "stop_replicas_req")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STOP_REPLICAS_REQ_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    stop_replicas_req: _containers.RepeatedCompositeFieldContainer[PbStopReplicaReqForBucket]
    def __init__(self, coordinator_epoch: _Optional[int] = ..., stop_replicas_req: _Optional[_Iterable[_Union[PbStopReplicaReqForBucket, _Mapping]]] = ...) -> None: ...

class StopReplicaResponse(_message.Message):
    __slots__ = ("stop_replicas_resp",)
    STOP_REPLICAS_RESP_FIELD_NUMBER: _ClassVar[int]
    stop_replicas_resp: _containers.RepeatedCompositeFieldContainer[PbStopReplicaRespForBucket]
    def __init__(self, stop_replicas_resp: _Optional[_Iterable[_Union[PbStopReplicaRespForBucket, _Mapping]]] = ...) -> None: ...

class PbStopReplicaReqForBucket(_message.Message):
    __slots__ = ("table_bucket", "leader_epoch", "delete", "seal_at_offset", "unseal", "seal_number")
    TABLE_BUCKET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    SEAL_AT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNSEAL_FIELD_NUMBER: _ClassVar[int]
    SEAL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    table_bucket: PbTableBucket
    leader_epoch: int
    delete: bool
    seal_at_offset: int
    unseal: bool
    seal_number: int
    def __init__(self, table_bucket: _Optional[_Union[PbTableBucket, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., delete: _Optional[bool] = ..., seal_at_offset: _Optional[int] = ..., unseal: _Optional[bool] = ..., seal_number: _Optional[int] = ...) -> None: ...

class PbStopReplicaRespForBucket(_message.Message):
    __slots__ = ("table_bucket", "error_code", "error_message", "log_end_offset", "log_max_timestamp")
    TABLE_BUCKET_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    table_bucket: PbTableBucket
    error_code: int
    error_message: str
    log_end_offset: int
    log_max_timestamp: int
    def __init__(self, table_bucket: _Optional[_Union[PbTableBucket, _Mapping]] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., log_max_timestamp: _Optional[int] = ...) -> None: ...

class NotifyLakeTableOffsetRequest(_message.Message):
    __slots__ = ("coordinator_epoch", "notify_buckets_req")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    notify_buckets_req: _containers.RepeatedCompositeFieldContainer[PbNotifyLakeTableOffsetReqForBucket]
    def __init__(self, coordinator_epoch: _Optional[int] = ..., notify_buckets_req: _Optional[_Iterable[_Union[PbNotifyLakeTableOffsetReqForBucket, _Mapping]]] = ...) -> None: ...

class PbNotifyLakeTableOffsetReqForBucket(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket_id", "snapshot_id", "log_start_offset", "log_end_offset", "log_max_timestamp", "commit_sequence")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket_id: int
    snapshot_id: int
    log_start_offset: int
    log_end_offset: int
    log_max_timestamp: int
    commit_sequence: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., log_max_timestamp: _Optional[int] = ..., commit_sequence: _Optional[int] = ...) -> None: ...

class NotifyLakeTableOffsetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLakeSnapshotRequest(_message.Message):
    __slots__ = ("table_path", "snapshot_id")
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    snapshot_id: int
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., snapshot_id: _Optional[int] = ...) -> None: ...

class GetLakeSnapshotResponse(_message.Message):
    __slots__ = ("table_id", "snapshotId", "bucket_snapshots")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    snapshotId: int
    bucket_snapshots: _containers.RepeatedCompositeFieldContainer[PbLakeSnapshotForBucket]
    def __init__(self, table_id: _Optional[int] = ..., snapshotId: _Optional[int] = ..., bucket_snapshots: _Optional[_Iterable[_Union[PbLakeSnapshotForBucket, _Mapping]]] = ...) -> None: ...

class PbLakeSnapshotForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "log_offset", "partition_name", "log_max_timestamp", "log_start_offset")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    log_offset: int
    partition_name: str
    log_max_timestamp: int
    log_start_offset: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., log_offset: _Optional[int] = ..., partition_name: _Optional[str] = ..., log_max_timestamp: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class CommitLakeTableSnapshotRequest(_message.Message):
    __slots__ = ("tables_req",)
    TABLES_REQ_FIELD_NUMBER: _ClassVar[int]
    tables_req: _containers.RepeatedCompositeFieldContainer[PbLakeTableSnapshotInfo]
    def __init__(self, tables_req: _Optional[_Iterable[_Union[PbLakeTableSnapshotInfo, _Mapping]]] = ...) -> None: ...

class PbLakeTableSnapshotInfo(_message.Message):
    __slots__ = ("table_id", "snapshot_id", "buckets_req", "tiering_epoch", "coordinator_epoch", "repair")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    snapshot_id: int
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbLakeTableOffsetForBucket]
    tiering_epoch: int
    coordinator_epoch: int
    repair: bool
    def __init__(self, table_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., buckets_req: _Optional[_Iterable[_Union[PbLakeTableOffsetForBucket, _Mapping]]] = ..., tiering_epoch: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., repair: _Optional[bool] = ...) -> None: ...

class PbLakeTableOffsetForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "log_start_offset", "log_end_offset", "log_max_timestamp")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    log_start_offset: int
    log_end_offset: int
    log_max_timestamp: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., log_max_timestamp: _Optional[int] = ...) -> None: ...

class CommitLakeTableSnapshotResponse(_message.Message):
    __slots__ = ("table_resp",)
    TABLE_RESP_FIELD_NUMBER: _ClassVar[int]
    table_resp: _containers.RepeatedCompositeFieldContainer[PbCommitLakeTableSnapshotRespForTable]
    def __init__(self, table_resp: _Optional[_Iterable[_Union[PbCommitLakeTableSnapshotRespForTable, _Mapping]]] = ...) -> None: ...

class PbCommitLakeTableSnapshotRespForTable(_message.Message):
    __slots__ = ("error_code", "error_message", "table_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    table_id: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., table_id: _Optional[int] = ...) -> None: ...

class LakeTieringHeartbeatRequest(_message.Message):
    __slots__ = ("tiering_tables", "finished_tables", "failed_tables", "request_table", "force_finished_tables", "request_table_id", "session_id")
    TIERING_TABLES_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TABLES_FIELD_NUMBER: _ClassVar[int]
    FAILED_TABLES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TABLE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FINISHED_TABLES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    tiering_tables: _containers.RepeatedCompositeFieldContainer[PbHeartbeatReqForTable]
    finished_tables: _containers.RepeatedCompositeFieldContainer[PbHeartbeatReqForTable]
    failed_tables: _containers.RepeatedCompositeFieldContainer[PbHeartbeatReqForTable]
    request_table: bool
    force_finished_tables: _containers.RepeatedScalarFieldContainer[int]
    request_table_id: int
    session_id: int
    def __init__(self, tiering_tables: _Optional[_Iterable[_Union[PbHeartbeatReqForTable, _Mapping]]] = ..., finished_tables: _Optional[_Iterable[_Union[PbHeartbeatReqForTable, _Mapping]]] = ..., failed_tables: _Optional[_Iterable[_Union[PbHeartbeatReqForTable, _Mapping]]] = ..., request_table: _Optional[bool] = ..., force_finished_tables: _Optional[_Iterable[int]] = ..., request_table_id: _Optional[int] = ..., session_id: _Optional[int] = ...) -> None: ...

class LakeTieringHeartbeatResponse(_message.Message):
    __slots__ = ("coordinator_epoch", "tiering_table", "tiering_table_resp", "finished_table_resp", "failed_table_resp", "request_error")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIERING_TABLE_FIELD_NUMBER: _ClassVar[int]
    TIERING_TABLE_RESP_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TABLE_RESP_FIELD_NUMBER: _ClassVar[int]
    FAILED_TABLE_RESP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ERROR_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    tiering_table: PbLakeTieringTableInfo
    tiering_table_resp: _containers.RepeatedCompositeFieldContainer[PbHeartbeatRespForTable]
    finished_table_resp: _containers.RepeatedCompositeFieldContainer[PbHeartbeatRespForTable]
    failed_table_resp: _containers.RepeatedCompositeFieldContainer[PbHeartbeatRespForTable]
    request_error: ErrorResponse
    def __init__(self, coordinator_epoch: _Optional[int] = ..., tiering_table: _Optional[_Union[PbLakeTieringTableInfo, _Mapping]] = ..., tiering_table_resp: _Optional[_Iterable[_Union[PbHeartbeatRespForTable, _Mapping]]] = ..., finished_table_resp: _Optional[_Iterable[_Union[PbHeartbeatRespForTable, _Mapping]]] = ..., failed_table_resp: _Optional[_Iterable[_Union[PbHeartbeatRespForTable, _Mapping]]] = ..., request_error: _Optional[_Union[ErrorResponse, _Mapping]] = ...) -> None: ...

class PbLakeTieringTableInfo(_message.Message):
    __slots__ = ("table_id", "table_path", "tiering_epoch", "takeover")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    table_path: PbTablePath
    tiering_epoch: int
    takeover: bool
    def __init__(self, table_id: _Optional[int] = ..., table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., tiering_epoch: _Optional[int] = ..., takeover: _Optional[bool] = ...) -> None: ...

class PbHeartbeatReqForTable(_message.Message):
    __slots__ = ("table_id", "coordinator_epoch", "tiering_epoch", "lake_tiering_stats", "error_message", "error_code", "round", "is_upkeep", "is_unfinished")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAKE_TIERING_STATS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IS_UPKEEP_FIELD_NUMBER: _ClassVar[int]
    IS_UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    coordinator_epoch: int
    tiering_epoch: int
    lake_tiering_stats: PbLakeTieringStats
    error_message: str
    error_code: int
    round: PbRoundFacts
    is_upkeep: bool
    is_unfinished: bool
    def __init__(self, table_id: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., tiering_epoch: _Optional[int] = ..., lake_tiering_stats: _Optional[_Union[PbLakeTieringStats, _Mapping]] = ..., error_message: _Optional[str] = ..., error_code: _Optional[int] = ..., round: _Optional[_Union[PbRoundFacts, _Mapping]] = ..., is_upkeep: _Optional[bool] = ..., is_unfinished: _Optional[bool] = ...) -> None: ...

class PbRoundFacts(_message.Message):
    __slots__ = ("row_count", "event_count", "files", "size_in_bytes", "splits", "snapshot_id", "is_limited", "plan_ms", "write_ms", "commit_ms", "maintain_ms", "total_ms", "records_before", "lag_ms_before", "records_after", "lag_ms_after")
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SIZE_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    IS_LIMITED_FIELD_NUMBER: _ClassVar[int]
    PLAN_MS_FIELD_NUMBER: _ClassVar[int]
    WRITE_MS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAINTAIN_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_AFTER_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_AFTER_FIELD_NUMBER: _ClassVar[int]
    row_count: int
    event_count: int
    files: int
    size_in_bytes: int
    splits: int
    snapshot_id: int
    is_limited: bool
    plan_ms: int
    write_ms: int
    commit_ms: int
    maintain_ms: int
    total_ms: int
    records_before: int
    lag_ms_before: int
    records_after: int
    lag_ms_after: int
    def __init__(self, row_count: _Optional[int] = ..., event_count: _Optional[int] = ..., files: _Optional[int] = ..., size_in_bytes: _Optional[int] = ..., splits: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., is_limited: _Optional[bool] = ..., plan_ms: _Optional[int] = ..., write_ms: _Optional[int] = ..., commit_ms: _Optional[int] = ..., maintain_ms: _Optional[int] = ..., total_ms: _Optional[int] = ..., records_before: _Optional[int] = ..., lag_ms_before: _Optional[int] = ..., records_after: _Optional[int] = ..., lag_ms_after: _Optional[int] = ...) -> None: ...

class PbLakeTieringStats(_message.Message):
    __slots__ = ("file_size", "record_count")
    FILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    file_size: int
    record_count: int
    def __init__(self, file_size: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class PbHeartbeatRespForTable(_message.Message):
    __slots__ = ("table_id", "error")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    error: ErrorResponse
    def __init__(self, table_id: _Optional[int] = ..., error: _Optional[_Union[ErrorResponse, _Mapping]] = ...) -> None: ...

class ListTieringRoundsRequest(_message.Message):
    __slots__ = ("table_path",)
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    table_path: PbTablePath
    def __init__(self, table_path: _Optional[_Union[PbTablePath, _Mapping]] = ...) -> None: ...

class ListTieringRoundsResponse(_message.Message):
    __slots__ = ("table_id", "rounds")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    rounds: _containers.RepeatedCompositeFieldContainer[PbTieringRound]
    def __init__(self, table_id: _Optional[int] = ..., rounds: _Optional[_Iterable[_Union[PbTieringRound, _Mapping]]] = ...) -> None: ...

class PbTieringRound(_message.Message):
    __slots__ = ("tiering_epoch", "start_time", "end_time", "error", "facts", "idle_before")
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    IDLE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    tiering_epoch: int
    start_time: int
    end_time: int
    error: ErrorResponse
    facts: PbRoundFacts
    idle_before: int
    def __init__(self, tiering_epoch: _Optional[int] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., error: _Optional[_Union[ErrorResponse, _Mapping]] = ..., facts: _Optional[_Union[PbRoundFacts, _Mapping]] = ..., idle_before: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("client_name",)
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    def __init__(self, client_name: _Optional[str] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("session_id", "coordinator_epoch")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    coordinator_epoch: int
    def __init__(self, session_id: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("coordinator_epoch", "tablet_servers", "attached", "ephemeral", "started_time", "tiering_states", "options", "tablet_server_status", "metrics_pages", "kept_partitions", "folder_trouble", "write_trouble")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLET_SERVERS_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    STARTED_TIME_FIELD_NUMBER: _ClassVar[int]
    TIERING_STATES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TABLET_SERVER_STATUS_FIELD_NUMBER: _ClassVar[int]
    METRICS_PAGES_FIELD_NUMBER: _ClassVar[int]
    KEPT_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FOLDER_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    WRITE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    tablet_servers: _containers.RepeatedCompositeFieldContainer[PbServerNode]
    attached: int
    ephemeral: bool
    started_time: int
    tiering_states: _containers.RepeatedCompositeFieldContainer[PbTieringState]
    options: _containers.RepeatedCompositeFieldContainer[PbKeyValue]
    tablet_server_status: _containers.RepeatedCompositeFieldContainer[PbTabletServerStatus]
    metrics_pages: _containers.RepeatedCompositeFieldContainer[PbMetricsPage]
    kept_partitions: _containers.RepeatedCompositeFieldContainer[PbKeptPartition]
    folder_trouble: str
    write_trouble: str
    def __init__(self, coordinator_epoch: _Optional[int] = ..., tablet_servers: _Optional[_Iterable[_Union[PbServerNode, _Mapping]]] = ..., attached: _Optional[int] = ..., ephemeral: _Optional[bool] = ..., started_time: _Optional[int] = ..., tiering_states: _Optional[_Iterable[_Union[PbTieringState, _Mapping]]] = ..., options: _Optional[_Iterable[_Union[PbKeyValue, _Mapping]]] = ..., tablet_server_status: _Optional[_Iterable[_Union[PbTabletServerStatus, _Mapping]]] = ..., metrics_pages: _Optional[_Iterable[_Union[PbMetricsPage, _Mapping]]] = ..., kept_partitions: _Optional[_Iterable[_Union[PbKeptPartition, _Mapping]]] = ..., folder_trouble: _Optional[str] = ..., write_trouble: _Optional[str] = ...) -> None: ...

class PbKeptPartition(_message.Message):
    __slots__ = ("table_id", "table_path", "partition_name", "since_time", "reason")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    table_path: PbTablePath
    partition_name: str
    since_time: int
    reason: str
    def __init__(self, table_id: _Optional[int] = ..., table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., partition_name: _Optional[str] = ..., since_time: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class PbMetricsPage(_message.Message):
    __slots__ = ("server_id", "port")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    server_id: int
    port: int
    def __init__(self, server_id: _Optional[int] = ..., port: _Optional[int] = ...) -> None: ...

class PbTabletServerStatus(_message.Message):
    __slots__ = ("server_id", "state", "host", "port", "process_id", "restarts", "last_error")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    server_id: int
    state: str
    host: str
    port: int
    process_id: int
    restarts: int
    last_error: str
    def __init__(self, server_id: _Optional[int] = ..., state: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., process_id: _Optional[int] = ..., restarts: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...

class PbTieringState(_message.Message):
    __slots__ = ("table_id", "table_path", "state", "tiering_epoch", "last_tiered_time", "last_error", "failures", "due_time")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_PATH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_TIERED_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    table_path: PbTablePath
    state: str
    tiering_epoch: int
    last_tiered_time: int
    last_error: str
    failures: int
    due_time: int
    def __init__(self, table_id: _Optional[int] = ..., table_path: _Optional[_Union[PbTablePath, _Mapping]] = ..., state: _Optional[str] = ..., tiering_epoch: _Optional[int] = ..., last_tiered_time: _Optional[int] = ..., last_error: _Optional[str] = ..., failures: _Optional[int] = ..., due_time: _Optional[int] = ...) -> None: ...

class StopClusterRequest(_message.Message):
    __slots__ = ("only_attached",)
    ONLY_ATTACHED_FIELD_NUMBER: _ClassVar[int]
    only_attached: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, only_attached: _Optional[_Iterable[int]] = ...) -> None: ...

class StopClusterResponse(_message.Message):
    __slots__ = ("stopping",)
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    stopping: bool
    def __init__(self, stopping: _Optional[bool] = ...) -> None: ...
