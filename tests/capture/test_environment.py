"""What a sidecar says of the environment, of which nothing is a secret."""

from __future__ import annotations

import ctypes
import json
import shlex
import sys
import tracemalloc
import zlib
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.capture.conftest import Capture
from tests.capture.fake_nvml import Nvml
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.base.errors import NoAnswerError
from traceview.capture.sidecar.environment import (
    MASK,
    EnvironmentListener,
    listed_variables,
    loaded_versions,
    masked_arguments,
    masked_variable,
)
from traceview.capture.sidecar.file import Facts, Sidecar


def test_what_cannot_be_had_is_absent_with_its_reason() -> None:
    def broken() -> None:
        raise RuntimeError("no such thing")

    def absent() -> None:
        raise NoAnswerError("nobody asked for it")

    facts = Facts()
    for name, question in {"here": lambda: 0, "a": broken, "b": absent, "c": lambda: None}.items():
        facts.ask(name, question)
    assert facts.as_group() == {
        "here": 0,
        "missing": {
            "a": "RuntimeError",
            "b": "nobody asked for it",
            "c": "not known to this TensorFlow",
        },
    }


def test_libraries_are_asked_only_if_they_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 42   /opt/a b/libnccl.so.2\n"
        "7f00-7f01 r-xp 00000000 08:01 42   /opt/libcudnn.so.9\n7f02-7f03 rw-p 0 00:00 0 [heap]\n"
    )
    opened = []

    def nccl(version: Any) -> int:
        version._obj.value = 22304
        return 0

    def load(path: str, mode: int) -> dict[str, Callable[..., int]]:
        opened.append(path)
        return {"ncclGetVersion": nccl, "cudnnGetVersion": lambda: 90501}

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert loaded_versions(maps) == {"cudnn": "9.5.1", "nccl": "2.23.4"}
    assert opened == ["/opt/libcudnn.so.9", "/opt/a b/libnccl.so.2"]
    assert loaded_versions(tmp_path / "none") == {}


@pytest.mark.parametrize("has_nvml", [True, False])
def test_nvml_is_asked_where_it_is_and_let_go(
    monkeypatch: pytest.MonkeyPatch, *, has_nvml: bool
) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml if has_nvml else None)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    sidecar, listener = Sidecar(), EnvironmentListener()
    listener.opening(sidecar)
    listener.closed(sidecar, Path("trace"))
    assert ("driver" in sidecar.groups["versions"]) is has_nvml
    assert not nvml.is_open


def hooks(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What the sidecar says slows all Python down."""
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    sidecar = Sidecar()
    EnvironmentListener().opening(sidecar)
    return set(sidecar.groups["tracing"]["hooks"])


def test_what_slows_all_python_down_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        before = hooks(monkeypatch)
        tracemalloc.start()
        sys.setprofile(lambda *_: None)
        after = hooks(monkeypatch)
    finally:
        tracemalloc.stop()
        sys.settrace(usual[0])
        sys.setprofile(usual[1])
    assert not {"tracemalloc", "sys.settrace", "sys.setprofile"} & before
    assert after - before == {"tracemalloc", "sys.setprofile"}


@pytest.mark.parametrize("is_determined", [True, False])
def test_modes_that_find_mistakes_are_noted(
    is_determined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As modules that are loaded know them; what they do not know is off."""
    config = SimpleNamespace(jax_debug_nans=True, jax_disable_jit=False)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
    data = "tensorflow.python.data.ops.debug_mode"
    monkeypatch.setitem(sys.modules, data, SimpleNamespace(DEBUG_MODE=True))
    repeats = "tensorflow.python.util._pywrap_determinism"
    monkeypatch.setitem(sys.modules, repeats, SimpleNamespace(is_enabled=lambda: is_determined))
    placement = SimpleNamespace(_context=SimpleNamespace(log_device_placement=False))
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", placement)
    found = hooks(monkeypatch) - {"sys.settrace", "sys.monitoring"}
    assert ("tf.config.experimental.enable_op_determinism" in found) is is_determined
    found.discard("tf.config.experimental.enable_op_determinism")
    assert found == {"tf.data.experimental.enable_debug_mode", "jax_debug_nans"}


@pytest.mark.parametrize(("events", "is_on"), [(0, False), (1, True)])
def test_a_tool_that_watches_nothing_slows_nothing(
    events: int, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.12 on. Of a tool that is not in use Python does not answer what it watches."""
    watched = {3: events}
    names = {3: "coverage"}
    monitoring = SimpleNamespace(get_tool=names.get, get_events=watched.__getitem__)
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    assert ("sys.monitoring" in hooks(monkeypatch)) is is_on


SECRET = "hunter2"


@given(
    st.text(max_size=20),
    st.sampled_from("=:/@?&, \"'"),
    st.text(st.characters(exclude_characters="."), max_size=20),
)
@example("--password", "=", "")
@example("https://host/data?epoch=3&sig", "=", "&x=1")
@example("postgresql+psycopg://me", ":", "@host:5432/db")
@example("Authorization", ":", "")
@example('{"user": "me", "password": ', '"', '", "epochs": 3}')
@example("lr=0.1,token", "=", ",epochs=3")
@example("export PGPASSWORD", "=", "; python train")
def test_what_may_be_a_secret_is_not_shown(before: str, sign: str, after: str) -> None:
    """Whatever is around it, but for the name of an option and that of a script."""
    text = f"{before}{sign}{SECRET}{after}"
    assert SECRET not in masked_arguments(["train.py", text])[1]
    assert SECRET not in masked_variable(f"--flag {shlex.quote(text)}")


@pytest.mark.parametrize(
    ("argument", "seen"),
    [
        ("--epochs", "--epochs"),
        ("--lr=1e-4", "--lr=1e-4"),
        ("10:15", "10:15"),
        ("--fast=True", "--fast=True"),
        ("lr=0.1", "lr=0.1"),
        ("+trainer.gpus=8", "+trainer.gpus=8"),
        ("-j8", "-j8"),
        ("tools/train.py", "tools/train.py"),
        ("", ""),
        ("--data=gs://bucket/x", f"--data={MASK}"),
        ("-phunter2", f"-p{MASK}"),
        *((f"--{'a' * 64}", f"--{'a' * 64}"), (f"--{'a' * 65}", MASK)),
        *(("1" * 20, "1" * 20), ("1" * 21, MASK)),
        *((secret, MASK) for secret in ("gsk_abc", "hunter2", "aHVudGVyMg==", "aHVudGVyMg=")),
    ],
)
def test_of_a_command_line_only_what_is_no_secret_is_shown(argument: str, seen: str) -> None:
    assert masked_arguments(["train.py", argument]) == ["train.py", seen]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("gpu_private", "gpu_private"),
        ("^docker0,eth0", "^docker0,eth0"),
        ("mlx5_0:1,mlx5_1:1", "mlx5_0:1,mlx5_1:1"),
        ("GPU-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", "GPU-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"),
        ("--tf_xla_auto_jit=2 --xla_dump_to=/x/y", f"--tf_xla_auto_jit=2 --xla_dump_to={MASK}"),
        ("--tf_xla_auto_jit=2 --dump_token hunter2", f"--tf_xla_auto_jit=2 --dump_token {MASK}"),
        ("it's", MASK),
        *(("a" * 20, "a" * 20), ("a" * 21, MASK)),
    ],
)
def test_settings_and_flags_of_a_variable_are_shown(value: str, seen: str) -> None:
    assert masked_variable(value) == seen
    assert listed_variables({"NCCL_NET": value, "WANDB_API_KEY": value}) == {"NCCL_NET": seen}


SCRIPT = (
    SCRIPT_START
    + f"""
import threading, time
from tensorflow.python.profiler import profiler_v2

def log_in(password="{SECRET}"):
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end: token = "{SECRET}"

for number in batches(30):
    train_step(number)
    if number == 11:
        reader = threading.Thread(target=log_in, name="reader of https://me:{SECRET}@host/data")
        reader.start()
        reader.join()
        profiler_v2.start("https://host/logs?sig={SECRET}")
        profiler_v2.stop()
"""
)


def test_no_secret_of_a_script_is_in_its_sidecar_or_in_a_note(capture: Capture) -> None:
    """In its arguments, its variables, its source, a thread's name, and what it does in the window."""
    environment = {
        "NCCL_AUTHTOKEN": SECRET,
        "NCCL_NET": f"https://host/x?token={SECRET}",
        "XLA_FLAGS": f"--xla_dump_to=s3://me:{SECRET}@host/dump",
        "TF_XLA_FLAGS": f"--tf_password {SECRET}",
    }
    arguments = [f"--hftoken={SECRET}", "--dbpassword", SECRET, f"https://host/?sig={SECRET}"]
    done = capture(SCRIPT, arguments=arguments, environment=environment)
    assert done.code == 0
    assert "the script's own profile was not recorded" in done.err
    assert SECRET not in done.err
    sidecar = done.sidecar
    stacks = zlib.decompress(b64decode(sidecar["python"]["stacks"])).decode()
    assert "log_in" in stacks
    names = [thread["name"] for thread in sidecar["python"]["threads"]]
    assert MASK in names
    assert SECRET not in json.dumps(sidecar) + stacks
    shown_arguments = ["--hftoken=***", "--dbpassword", "***", "***"]
    assert sidecar["command"]["script"] == ["train.py", *shown_arguments]
    assert "NCCL_AUTHTOKEN" not in sidecar["variables"]
