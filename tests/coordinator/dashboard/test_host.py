"""`shoal host --dashboard` as a process: it says where the page is, heeds its token, and ends."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx

from tests.chaos.processes import host, running, worker
from tests.coordinator.dashboard.serving import TOKEN


def test_a_run_is_watched_and_stopped_from_the_dashboard(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    asked = ("CartPole-v1", "--dashboard", "0", "--dashboard-token-file", str(token))
    with host(*asked, run_dir=tmp_path / "run") as (leader, url):
        page = leader.await_line("dashboard at http://127.0.0.1:").split()[-1]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with (
            httpx.Client(base_url=page, trust_env=False, timeout=20.0) as client,
            client.stream("GET", "/stream") as answer,
        ):
            lines = answer.iter_lines()
            told = next(line for line in lines if line.startswith("data: "))
            assert '"role":"leading"' in told and url in told and TOKEN not in told
            with worker(url, tmp_path / "home", "--private") as volunteer:
                volunteer.await_line("welcomed")
                shown = next(line for line in lines if '"workers":[["private-' in line)
                assert '"","",' in shown  # neither a label nor a machine
                stop = client.post("/orders", json={"order": "stop"}, headers=headers)
                assert stop.status_code == 200
                assert leader.await_end() == 0
                assert volunteer.await_end() == 0
        assert any("stopped by the host (dashboard)" in line for line in leader.lines)
        assert not any(TOKEN in line for line in leader.lines)


def test_a_taken_port_is_one_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = ("shoal", "host", "CartPole-v1", "--broker", "embedded", "--port", "0")
        with running(*command, "--run-dir", str(tmp_path / "run"), "--dashboard", port) as process:
            assert process.await_end() == 2
    said = "\n".join(process.lines)
    assert f"error: --dashboard {port}: 127.0.0.1 can't be listened on" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()
