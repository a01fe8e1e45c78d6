"""Statements that make, alter, list or drop: those for a lab's tables say what does it, those for Spark's own are done."""

import re

import pytest

from fluss_lab.errors import UnsupportedError
from fluss_lab.workbench import Lab

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lab(spark, tmp_path_factory):
    with Lab.open(tmp_path_factory.mktemp("commands") / "lab") as lab:
        lab.create_database("nyc")
        lab.create_table("nyc.log", {"id": "int", "delay": "int"}).append(
            [{"id": 1, "delay": 1}, {"id": 2, "delay": 1}]
        )
        yield lab


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("drop table if exists nyc.log", 'DROP TABLE .*one of nyc.log; use lab.drop_table("nyc.log")'),
        ("drop view nyc.log", "DROP VIEW"),
        ("create table nyc.made as select * from nyc.log", 'CREATE TABLE AS SELECT .*lab.create_table("nyc.made"'),
        ("create or replace table nyc.log as select 1 as id", "REPLACE TABLE"),
        ("create view nyc.made as select * from nyc.log", "CREATE TEMPORARY VIEW"),
        ("alter table nyc.log add column z int", "ADD COLUMNS.*alter of"),
        ("alter table nyc.log add constraint c check (id > 0)", "ADD CHECK CONSTRAINT"),
        ("alter table nyc.log rename to nyc.log2", "RENAME TABLE"),
        ("alter table nyc.log drop partition (day='1')", "DROP PARTITIONS .*drop_partition"),
        ("truncate table nyc.log", "TRUNCATE TABLE"),
        ("comment on table nyc.log is 'x'", "COMMENT ON TABLE"),
        ("show partitions nyc.log", "SHOW PARTITIONS .*partitions of"),
        ("show create table nyc.log", "SHOW CREATE TABLE .*descriptor"),
        ("show tblproperties nyc.log", "SHOW TBLPROPERTIES .*descriptor"),
        ("describe extended nyc.log as json", "DESCRIBE AS JSON"),
        ("analyze table nyc.log compute statistics", "ANALYZE TABLE"),
        ("begin insert into nyc.log values (1, 2); end", "INSERT, UPDATE, DELETE and MERGE"),
        ("create database if not exists nyc", "CREATE NAMESPACE .*databases of the lab, found one of nyc"),
        ("-- of the lab\ndrop database if exists nyc cascade", 'lab.drop_database("nyc")'),
        ("use nyc", "USE .*nyc.table"),
        ("show tables in nyc", 'lab.tables("nyc")'),
        ("describe database nyc", "DESCRIBE NAMESPACE"),
    ],
)
def test_statements_that_make_alter_or_drop_say_how_it_is_done(lab, text, words):
    before = lab.tables()
    pattern = re.escape(words).replace(r"\.\*", ".*")
    for run in (lab.sql, lab.spark.sql):
        with pytest.raises(UnsupportedError, match=pattern):
            run(text)
    assert lab.tables() == before
    assert [each.name for each in lab.spark.catalog.listDatabases()] == ["default"]


def test_spark_s_own_tables_and_databases_are_made_and_dropped(lab):
    try:
        lab.sql("create database own")
        lab.sql("create table own.log using parquet as select * from nyc.log")
        assert lab.sql("select count(*) from own.log").first() == lab.sql("select count(*) from nyc.log").first()
        shown = lab.spark.sql("show tables in own").collect()  # temporary views of the session too
        assert [row.tableName for row in shown if not row.isTemporary] == ["log"]
        lab.create_database("own")  # from here on the name is the lab's too
        lab.sql("create table own.made like nyc.log")
    finally:
        lab.spark.sql("drop database own cascade")
        lab.drop_database("own", if_exists=True)
