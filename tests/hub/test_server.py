"""The loopback Hub is what huggingface_hub's own client takes for the Hub."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import hf_hub_download

import builder as b
from hub.server import Server


def hello(tmp_path: Path) -> Path:
    return b.write(tmp_path / "repo", b.dense_config(), b.dense(), shards=2)


def test_download_of_a_config_is_its_bytes_and_the_cache_has_the_layout_of_the_hub(
    loopback: Server, tmp_path: Path
) -> None:
    folder = hello(tmp_path)
    commit = loopback.add("org/name", folder)
    got = Path(hf_hub_download("org/name", "config.json", endpoint=loopback.hub, cache_dir=tmp_path / "cache"))
    assert got.read_bytes() == (folder / "config.json").read_bytes()
    assert got.parent == tmp_path / "cache" / "models--org--name" / "snapshots" / commit
    assert (tmp_path / "cache" / "models--org--name" / "refs" / "main").read_text() == commit
