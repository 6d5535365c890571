"""Runs the steps of action.yml as GitHub's runner does, with a stand-in for its environment.

The reader knows the part of YAML that the file uses, and refuses what YAML would take for something else. `gh` is a
program that keeps the comments of a pull request in a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
ACTION: Final = ROOT / "action.yml"
_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<dash>- )?(?:(?P<key>[\w-]+):(?: +(?P<value>.*))?|(?P<text>.+))"
)
_EXPRESSION: Final = re.compile(r"\$\{\{(.*?)\}\}")
_NAME: Final = re.compile(r"'[^']*'|[a-z][\w.-]*(?:\(\))?")

GH = """\
#!{python}
import json, os, sys
arguments = sys.argv[1:]
with open(os.environ["GH_LOG"], "a") as log:
    print(json.dumps(arguments), file=log)
if os.environ.get("GH_FAILS"):
    sys.exit("HTTP 403: Resource not accessible by integration")
if not os.environ.get("GH_TOKEN"):
    sys.exit("gh: set the GH_TOKEN environment variable")
place = os.environ["GH_COMMENTS"]
comments = json.load(open(place))
assert arguments[0] == "api"
if "--jq" in arguments:
    assert arguments[1] == "--paginate"
    expression = arguments[arguments.index("--jq") + 1]
    before, marker, after = expression.split('"')[0], expression.split('startswith("')[1].split('"')[0], expression[-7:]
    assert expression == f'.[] | select(.user.type == "Bot" and (.body | startswith("{{marker}}"))) | .id', expression
    for comment in comments:
        if comment["user"] == "Bot" and comment["body"].startswith(marker):
            print(comment["id"])
    sys.exit()
method, url = arguments[arguments.index("--method") + 1], arguments[arguments.index("--method") + 2]
name, _, body = arguments[arguments.index("-F") + 1].partition("=@")
assert name == "body"
text = open(body).read()
if method == "POST":
    assert url == "repos/owner/project/issues/7/comments", url
    comments.append({{"id": 100 + len(comments), "user": "Bot", "body": text}})
else:
    assert method == "PATCH", method
    (comment,) = (row for row in comments if url == f"repos/owner/project/issues/comments/{{row['id']}}")
    comment["body"] = text
json.dump(comments, open(place, "w"))
"""


def read_yaml(text: str) -> Any:
    """The value of a file in the part of YAML that is used here; raises `ValueError` for anything else."""
    lines = [line for line in text.splitlines() if line.strip()]
    value, rest = _block(lines, 0)
    if rest:
        raise ValueError(f"not understood: {rest[0]!r}")
    return value


def _block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    is_list = lines[0][indent:].startswith("- ")
    items: list[Any] = []
    entries: dict[str, Any] = {}
    while lines and len(lines[0]) - len(lines[0].lstrip()) == indent:
        if is_list:
            lines = [" " * (indent + 2) + lines[0][indent + 2 :], *lines[1:]]
            item, lines = _block(lines, indent + 2)
            items.append(item)
            continue
        match = _LINE.fullmatch(lines[0])
        if match is None or match["key"] is None:
            raise ValueError(f"not understood: {lines[0]!r}")
        key, value, lines = match["key"], match["value"], lines[1:]
        if value == "|":
            inner = [line for line in lines if line]
            end = next(
                (n for n, line in enumerate(inner) if len(line) - len(line.lstrip()) <= indent),
                len(inner),
            )
            width = len(inner[0]) - len(inner[0].lstrip())
            entries[key] = "".join(f"{line[width:]}\n" for line in inner[:end])
            lines = inner[end:]
        elif value is None:
            entries[key], lines = _block(lines, indent + 2)
        else:
            entries[key] = _scalar(value)
    return (items if is_list else entries), lines


def _scalar(text: str) -> str | bool:
    # The version beside the commit of an action.
    text = re.sub(r"(@[0-9a-f]{40}) # v[\d.]+$", r"\1", text)
    if text.startswith('"'):
        return str(json.loads(text))
    if ": " in text or " #" in text or text[0] in "&*!|>%@`[]{},'?":
        raise ValueError(f"YAML takes this for something else: {text!r}")
    return text == "true" if text in ("true", "false") else text


@dataclass
class Outcome:
    """What a run of the action left: the exit code of the step that failed, 0 without one, and by step its output."""

    code: int = 0
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    uploaded: list[str] = field(default_factory=list)


class Runner:
    """GitHub's runner on a pull request. `folder`: the workspace."""

    def __init__(self, folder: Path) -> None:
        self.action = read_yaml(ACTION.read_text(encoding="utf-8"))
        self.folder = folder
        self.pull_request = "7"
        self.comments = folder / "comments.json"
        self.comments.write_text("[]")
        self.log = folder / "gh.log"
        self.environment: dict[str, str] = {}
        self._bin = folder / "bin"
        self._bin.mkdir()
        self.program("gh", GH.format(python=sys.executable))
        self.program(
            "traceview", f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m traceview "$@"\n'
        )
        self.program("python", '#!/bin/sh\necho "python $*"\n')

    def program(self, name: str, text: str) -> None:
        """Put a program on the path."""
        (self._bin / name).write_text(text)
        (self._bin / name).chmod(0o755)

    def run(self, **inputs: str) -> Outcome:
        """Run every step whose condition holds."""
        given = {key.replace("_", "-"): value for key, value in inputs.items()}
        unknown = set(given) - set(self.action["inputs"])
        assert not unknown, unknown
        known = {key: str(about["default"]) for key, about in self.action["inputs"].items()} | given
        outcome = Outcome()
        for step in self.action["runs"]["steps"]:
            names = self._names(known, outcome)
            condition = str(step.get("if", "${{ 'true' }}"))
            is_wanted = "always()" in condition or outcome.code == 0
            if not is_wanted or self._evaluated(condition, names) in ("", "false", "False"):
                continue
            if "uses" in step:
                assert re.fullmatch(r"actions/upload-artifact@[0-9a-f]{40}", step["uses"])
                outcome.uploaded.append(self._filled(step["with"]["path"], names))
            else:
                self._step(step, names, outcome)
        return outcome

    def _step(self, step: Mapping[str, Any], names: Mapping[str, str], outcome: Outcome) -> None:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input would become part of the script"
        output, summary = self.folder / "output", self.folder / "summary"
        output.write_text("")
        summary.touch()
        settings = {key: self._filled(value, names) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            # As the runner calls bash.
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_REPOSITORY": "owner/project",
                "GITHUB_SERVER_URL": "https://github.example",
                "GITHUB_RUN_ID": "42",
                "GH_COMMENTS": str(self.comments),
                "GH_LOG": str(self.log),
                **self.environment,
                **settings,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )
        outcome.printed[step["name"]] = done.stdout
        outcome.summary = summary.read_text("utf-8")
        if "id" in step:
            pairs = (line.partition("=") for line in output.read_text("utf-8").splitlines())
            outcome.outputs[step["id"]] = {key: value for key, _, value in pairs}
        outcome.code = outcome.code or done.returncode

    def _names(self, inputs: Mapping[str, str], outcome: Outcome) -> dict[str, str]:
        names = {f"inputs.{key}": value for key, value in inputs.items()}
        names |= {
            "github.token": "secret",
            "github.event.pull_request.number": self.pull_request,
            "always()": "true",
        }
        for step, values in outcome.outputs.items():
            names |= {f"steps.{step}.outputs.{key}": value for key, value in values.items()}
        for key, value in inputs.items():
            names[f"inputs.{key}"] = self._filled(value, names)
        return names

    def _filled(self, text: str, names: Mapping[str, str]) -> str:
        return _EXPRESSION.sub(lambda match: self._evaluated(match[0], names), text)

    def _evaluated(self, text: str, names: Mapping[str, str]) -> str:
        (expression,) = _EXPRESSION.findall(text)

        def value(match: re.Match[str]) -> str:
            name = match[0]
            return name if name.startswith("'") else repr(names.get(name, ""))

        return str(eval(_NAME.sub(value, expression.strip()).replace("&&", " and ")))

    def comment_bodies(self) -> list[str]:
        """The comments on the pull request."""
        return [comment["body"] for comment in json.loads(self.comments.read_text())]
