"""The generated protobuf code that is checked in is what the .proto source gives."""

import subprocess
import sys

from tests.architecture.laws import ROOT

_GENERATED = ("fluss_api_pb2.py", "fluss_api_pb2.pyi")


def _generate(source, target):
    words = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", f"--python_out={target}", f"--pyi_out={target}"]
    subprocess.run([*words, "fluss_api.proto"], check=True, cwd=ROOT, capture_output=True)
    return {name: (target / name).read_text() for name in _GENERATED}


def test_generated_code_is_up_to_date(tmp_path):
    made = _generate("proto", tmp_path)
    for name in _GENERATED:
        assert (ROOT / "fluss_lab" / "rpc" / name).read_text() == made[name], f"{name} is stale: make proto"


def test_a_changed_source_gives_other_code(tmp_path):
    """The negative control: one more field is seen."""
    source = tmp_path / "proto"
    source.mkdir()
    text = (ROOT / "proto" / "fluss_api.proto").read_text()
    (source / "fluss_api.proto").write_text(text + "\nmessage Stranger { optional int32 x = 1; }\n")
    (tmp_path / "out").mkdir()
    made = _generate(source, tmp_path / "out")
    for name in _GENERATED:
        assert (ROOT / "fluss_lab" / "rpc" / name).read_text() != made[name]
