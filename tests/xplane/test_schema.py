"""The private schema coexists with other definitions of the same messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_OTHER = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(
    name="tsl/profiler/protobuf/xplane.proto", package="tensorflow.profiler", syntax="proto3")
file.message_type.add(name="XSpace").field.add(
    name="planes", number=1, label=3, type=11, type_name=".tensorflow.profiler.XPlane")
file.message_type.add(name="XPlane").field.add(name="name", number=2, label=1, type=9)
# A second file under our own name: only a pool of our own keeps this apart.
ours = descriptor_pb2.FileDescriptorProto(
    name="traceview/xplane.proto", package="traceview.xplane", syntax="proto3")
ours.message_type.add(name="Space").field.add(name="other", number=1, label=1, type=5)
for one in (file, ours):
    descriptor_pool.Default().Add(one)
XSpace = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName("tensorflow.profiler.XSpace"))
"""
_OURS = """
from pathlib import Path
from traceview.xplane import read, schema
assert {f.name for f in schema.SpaceHeader.DESCRIPTOR.fields} == {"errors", "warnings", "hostnames"}
names = [plane.name for plane in read.read_file(Path(PATH)).planes]
"""
_TWICE = """
import sys
for name in [name for name in sys.modules if name.startswith("traceview")]:
    del sys.modules[name]
from traceview.xplane import read as again
assert again is not read
assert [plane.name for plane in again.read_file(Path(PATH)).planes] == names
"""
_CHECK = """
assert [plane.name.encode() for plane in XSpace.FromString(Path(PATH).read_bytes()).planes] == names
print(len(names))
"""


@pytest.mark.parametrize("parts", [(_OTHER, _OURS), (_OURS, _OTHER), (_OURS, _OTHER, _TWICE)])
def test_other_pools_in_either_order_and_a_second_import(
    fixtures: Path, parts: tuple[str, ...]
) -> None:
    (path,) = fixtures.glob("plain-1/plugins/profile/*/*.xplane.pb")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "".join((f"PATH = {str(path)!r}\n", *parts, _CHECK))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1
