from __future__ import annotations

import pytest

from traceview.capture.secrets import MASK, masked, masked_arguments, masked_variable

SECRET = "hunter2"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--password", SECRET],
        [f"--password={SECRET}"],
        [f"--password={SECRET},and;more of it"],
        ["-token", SECRET],
        ["--hub-token", SECRET],
        ["--hubToken", SECRET],
        ["--api_key", SECRET, "--epochs", "3"],
        [f"--wandb.api_key={SECRET}"],
        [f"WANDB_API_KEY={SECRET}"],
        [f"trainer.logger.secret={SECRET}"],
        [f"--data=https://me:{SECRET}@example.org/x"],
        [f"postgres://{SECRET}@host/db"],
        [f"https://host/data?epoch=3&sig={SECRET}&x=1"],
        [f'{{"user": "me", "password": "{SECRET} {SECRET}"}}'],
        ["--header", f"Authorization: Bearer {SECRET}"],
        [f"--header=X: basic {SECRET}"],
        ["--conn", f"Server=a;Password={SECRET};Timeout=3"],
    ],
)
def test_what_is_named_like_a_secret_is_masked(arguments: list[str]) -> None:
    shown = masked_arguments(["train.py", *arguments])
    assert SECRET not in " ".join(shown)
    assert MASK in " ".join(shown)
    assert len(shown) == 1 + len(arguments)


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-abcdefghijklmnop",
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "hf_abcdefghijklmnopqrstuvwx",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-1234-abcdefgh",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "0123456789abcdef0123456789abcdef01234567",
        "-----BEGIN RSA PRIVATE KEY-----\nabc",
    ],
)
def test_a_token_of_known_form_is_masked_wherever_it_stands(text: str) -> None:
    assert masked(text) == MASK
    assert text not in masked(f"--run={text} --epochs=3")
    assert masked_variable("NCCL_NET", text) == MASK


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokenizer", "bert", "--max-tokens", "512", "--num_tokens=3"],
        ["--author", "me", "--monkey=1", "--keyboard", "de"],
        ["--steps", "100:110", "/data/imagenet/train-00001-of-01024.tfrecord"],
        ["--model=my_long_experiment_name_with_resnet50_and_batch_256"],
        ["--lr", "1e-3", "https://example.org/data.tar.gz?version=3", "a@b.org"],
        ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "--xla_gpu_autotune_level=2"],
    ],
)
def test_what_is_no_secret_stays(arguments: list[str]) -> None:
    assert masked_arguments(arguments) == arguments


def test_an_option_without_value_hides_no_other_option() -> None:
    assert masked_arguments(["--auth", "--epochs", "3"]) == ["--auth", "--epochs", "3"]


def test_a_variable_of_a_secret_name_is_masked_whole() -> None:
    assert masked_variable("NCCL_AUTH_TOKEN", "a b c") == MASK
    assert masked_variable("NCCL_SOCKET_IFNAME", "eth0") == "eth0"
