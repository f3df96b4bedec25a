"""What the environment says is heeded as the Hub's own client heeds it; a token goes to its own origin alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

import builder as b
from draftproof import cli
from draftproof.findings import Finding, Report
from draftproof.render import as_json, report_text
from draftproof.transport import Transport
from hub import asking
from hub.asking import ask, said
from hub.server import Request, Server, redirects, says

SECRET = "hf_SecretSecretSecretSecret"
RUN = "import sys; from draftproof.cli import main; sys.exit(main())"


def everything(report: Report) -> str:
    """Return all that a report can print."""
    return report_text(report, level="pass") + as_json(report.to_dict()) + repr(report)


def only(report: Report, prefix: str = "SRC") -> Finding:
    (found,) = (f for f in report.findings if f.code.startswith(prefix))
    return found


# --- tokens


@pytest.mark.parametrize("where", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "file"])
def test_token_goes_to_the_endpoint_and_never_to_the_cdn_nor_into_a_message(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    asking.both(loopback, tmp_path)
    loopback.tokens = {SECRET}
    if where == "file":
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / "token").write_text(SECRET + "\n")
    else:
        monkeypatch.setenv(where, SECRET)
    for name in (b.DRAFTER, b.TARGET):
        loopback.repos[name].access, loopback.repos[name].readers = "private", {SECRET}
    report = ask()
    assert report.verdict == "pass"
    assert {(s.side, s.token) for s in loopback.log} == {("hub", SECRET), ("cdn", "")}
    assert SECRET not in everything(report)
    assert not [
        p for p in (tmp_path / "home" / "draftproof").rglob("*") if p.is_file() and SECRET in p.read_text("latin-1")
    ]
    for name in (b.DRAFTER, b.TARGET):
        loopback.repos[name].readers = set()
    for access, code in (("gated", "SRC102"), ("private", "SRC101")):
        loopback.repos[b.DRAFTER].access = access
        found = only(ask("live", f"{b.DRAFTER}@v9", None))
        assert (found.code, found.level) == (code, "unknown")
        assert f"a token was sent (from {'the token file' if where == 'file' else where})" in found.observed
        assert SECRET not in repr(found)


def test_token_is_not_sent_after_a_redirect_to_another_origin_even_on_the_way_back(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.both(loopback, tmp_path)
    loopback.tokens = {SECRET}
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with Server() as other:
        other.add(b.DRAFTER, asking.drafter(tmp_path / "other"))
        loopback.rule("*config.json", what=redirects(f"{other.hub}/{b.DRAFTER}/resolve/main/config.json"))
        ask("live", b.DRAFTER, None)
        assert other.requests > 0
        assert {s.token for s in other.log} == {""}


def test_no_token_is_sent_where_none_is_wanted(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.both(loopback, tmp_path)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    assert ask().verdict == "pass"
    assert {s.token for s in loopback.log} == {""}
    found = only(ask("live", "org/absent", None))
    assert "no token was sent: HF_HUB_DISABLE_IMPLICIT_TOKEN is set" in found.observed


def test_token_that_is_not_valid_is_told_as_that(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.both(loopback, tmp_path)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    report = ask("live", b.DRAFTER, None)
    found = only(report)
    assert (found.code, found.level) == ("SRC103", "unknown")
    assert "from HF_TOKEN" in found.observed
    assert SECRET not in everything(report)


@pytest.mark.parametrize(("access", "code"), [("gated", "SRC102"), ("private", "SRC101")])
def test_repo_that_may_not_be_read_says_both_possibilities_and_what_to_do(
    loopback: Server, tmp_path: Path, access: str, code: str
) -> None:
    asking.both(loopback, tmp_path)
    loopback.repos[b.DRAFTER].access = access
    report = ask("live", b.DRAFTER, None)
    found = only(report)
    assert (found.code, report.verdict) == (code, "unknown")
    assert "no token was sent: none was found in HF_TOKEN or in the token file" in found.observed
    if access == "gated":
        assert f"{loopback.hub}/{b.DRAFTER}" in found.help
        assert "hf auth login" in found.help
    else:
        assert found.message == "the repo is private, or is not there"


@pytest.mark.parametrize("make", ["folder", "no text"])
def test_token_file_that_cannot_be_read_is_told_and_stops_nothing(loopback: Server, tmp_path: Path, make: str) -> None:
    asking.both(loopback, tmp_path)
    path = tmp_path / "home" / "token"
    path.parent.mkdir()
    path.mkdir() if make == "folder" else path.write_bytes(b"\xff\xfe\x00")
    assert ask().verdict == "pass"
    assert {s.token for s in loopback.log} == {""}
    assert "the token file cannot be read" in only(ask("live", "org/absent", None)).observed


def test_no_token_goes_over_plain_http_to_another_machine(monkeypatch: pytest.MonkeyPatch, online: object) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    for endpoint, sent in (
        ("http://hub.example", None),
        ("http://localhost.example", None),
        ("http://127.example", None),
        ("http://127.0.0.1.example", None),
        ("http://127.0.0.1:8080", SECRET),
        ("http://localhost:8080", SECRET),
        ("https://hub.example", SECRET),
    ):
        assert asking.hub(endpoint=endpoint).token[0] == sent, endpoint


def test_transport_with_a_token_does_not_show_it() -> None:
    made = Transport("https://hub.example", lambda: None, SECRET)
    assert SECRET not in repr(made)


# --- endpoint, mirrors, proxies


def test_endpoint_with_a_path_is_a_mirror(loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def below(request: Request) -> None:
        prefix, _, rest = request.path.partition("/mirror/hf/")
        if rest and not prefix:
            request.path = f"/{rest}"

    asking.both(loopback, tmp_path)
    loopback.rule("/mirror/hf/*", side="hub", what={"before": below})
    for endpoint in (f"{loopback.hub}/mirror/hf", f"{loopback.hub}/mirror/hf/"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert ask().verdict == "pass"


@pytest.fixture
def proxy(loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Make the Hub one that is reached by a proxy alone: its names are known to nobody else."""

    def through(request: Request) -> None:
        parts = urlsplit(request.path)
        request.path, request.side = parts.path, "cdn" if parts.hostname == "cdn.example" else "hub"

    asking.both(loopback, tmp_path)
    loopback.rule("http://*.example/*", what={"before": through})
    monkeypatch.setattr(loopback, "cdn", "http://cdn.example")
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    return loopback


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy_of_the_environment_is_used(proxy: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, proxy.hub)
    close_session()  # the client reads the environment when it is made
    assert ask().verdict == "pass"
    assert {s.headers["host"] for s in proxy.log} == {"hub.example", "cdn.example"}


def test_proxy_is_not_used_for_hosts_that_are_excepted(
    proxy: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    close_session()
    monkeypatch.setenv("HF_ENDPOINT", proxy.hub)
    proxy.cdn = urlsplit(proxy.hub)._replace(path="/x").geturl()
    proxy.rule("/x/*", what={"before": lambda request: setattr(request, "side", "cdn")})
    assert ask().verdict == "pass"


def test_proxy_that_does_not_answer_is_unreachable(proxy: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    close_session()
    found = only(ask("live", b.DRAFTER, None))
    assert (found.code, found.level, found.where) == ("SRC107", "unknown", "http://hub.example")


def test_endpoint_that_is_not_an_address_is_told(online: Callable[[str], None]) -> None:
    for endpoint in ("hub.example", "ftp://hub.example", "http://", "http://[", "http://a b"):
        online(endpoint)
        report = ask("live", b.DRAFTER, None)
        assert report.verdict == "unknown", endpoint
        found = only(report)
        assert (found.code, found.level) == ("SRC107", "unknown")
        assert "HF_ENDPOINT" in found.observed


def test_user_agent_says_who_asks(loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.both(loopback, tmp_path)
    monkeypatch.setenv("HF_HUB_USER_AGENT_ORIGIN", "a-lab\r\nX-Evil: 1")
    ask("live", b.DRAFTER, None)
    assert {s.headers["user-agent"].split("/")[0] for s in loopback.log} == {"draftproof"}
    assert not [s for s in loopback.log if "x-evil" in s.headers]


# --- the command line


def run(*words: str, **env: str) -> tuple[int, str, str]:
    """Run draftproof in a process of its own, whose environment is read anew."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_command_line_reads_both_sides_from_the_endpoint(loopback: Server, tmp_path: Path) -> None:
    commit, base = asking.both(loopback, tmp_path)
    words = ("check", "--drafter", b.DRAFTER, "--target", b.TARGET)
    code, out, err = run(*words)
    assert (code, err) == (4, ""), out  # what it was trained on is not declared
    assert f"{b.DRAFTER}@{commit[:7]}" in out
    assert f"{b.TARGET}@{base[:7]}" in out
    told = re.search(r"bytes in (\d+) requests", out)
    assert told is not None
    # a shard that is read ahead, and not waited for, may still be on its way when the command ends
    assert int(told[1]) in (loopback.requests, loopback.requests - 1)
    loopback.reset()
    code, out, _ = run(*words, "--format", "json")
    data = json.loads(out)
    assert [side["revision"] for side in data["sides"]] == [commit, base]
    assert loopback.requests == 2


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--drafter", b.DRAFTER, "--target", b.TARGET],
        ["diff", b.DRAFTER, "org/other"],
        ["init", "--drafter", b.DRAFTER, "--target", b.TARGET],
        ["init", "--drafter", b.DRAFTER, "--target", b.TARGET, "--output", "mine.toml"],
        ["adapt", b.DRAFTER, "--to", b.TARGET],
        ["record", b.DRAFTER],
    ],
    ids=lambda words: f"{words[0]}{len(words)}",
)
def test_every_command_says_what_it_moved(
    loopback: Server, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loopback.add(b.DRAFTER, asking.drafter(tmp_path / "d"))
    loopback.add(b.TARGET, asking.target(tmp_path / "t", shards=1))  # nothing that is read ahead, and not waited for
    loopback.add("org/other", asking.drafter(tmp_path / "other", rms_norm_eps=1e-6))
    for form in ("text", "json"):
        (tmp_path / form).mkdir()
        monkeypatch.chdir(tmp_path / form)
        monkeypatch.setenv("HF_HOME", str(tmp_path / form / "home"))
        loopback.reset()
        code = [sys.executable, "-c", RUN, *words, "--hub", "live", "--format", form]
        done = subprocess.run(code, capture_output=True, text=True, timeout=60, check=False)
        said = done.stdout + done.stderr
        asked = re.findall(r'"requests": (\d+)' if form == "json" else r"bytes in (\d+) requests", said)
        assert [int(n) for n in asked] == [loopback.requests], said
        assert loopback.requests > 0


def test_command_line_offline_by_any_of_its_switches_sends_nothing(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    for words, env in (
        (["--hub", "offline"], {}),
        ([], {"HF_HUB_OFFLINE": "1"}),
        ([], {"TRANSFORMERS_OFFLINE": "yes"}),
        (["--hub", "recordings"], {}),
    ):
        code, out, err = run("check", "--drafter", b.DRAFTER, *words, **env)
        assert (code, err) == (4, ""), out
        assert "SRC106" in out or "SRC112" in out
    assert (loopback.requests, loopback.connections) == (0, 0)


def test_command_line_sends_no_token_where_the_environment_forbids(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    loopback.tokens = {SECRET}
    for env, tokens in (({}, {SECRET}), ({"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, {""})):
        loopback.reset()
        code, out, _ = run("check", "--drafter", "org/other", HF_TOKEN=SECRET, **env)
        assert code == 4
        assert SECRET not in out
        assert {s.token for s in loopback.log} == tokens


def test_declared_target_of_a_drafter_on_the_hub_is_read_there(
    loopback: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, base = asking.both(loopback, tmp_path)
    own = tmp_path / "contracts" / "models" / "org--drafter.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        f'schema = 1\nkind = "model"\nid = "org--drafter"\nrepo = "{b.DRAFTER}"\n'
        f'trained_on = {{ value = "{b.TARGET}", source = "its card" }}\n'
    )
    cli.main(["check", "--drafter", b.DRAFTER, "--contracts", str(tmp_path / "contracts")])
    assert f"{b.TARGET}@{base[:7]}" in capsys.readouterr().out


def test_error_of_the_server_is_told_with_its_number(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    loopback.rule(what=says(500, X_Request_Id="Root=1-abc"))
    found = only(ask("live", b.DRAFTER, None))
    assert (found.code, found.observed) == ("SRC105", "HTTP 500, request Root=1-abc")
    assert said(ask("recordings", b.DRAFTER, None)) == ["SRC112 unknown"]
