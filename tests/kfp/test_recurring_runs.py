"""Test ``tfopt schedule`` with a local server that checks requests against KFP's schema."""

import json
from copy import deepcopy
from datetime import UTC, datetime

import pytest

from tests.kfp_server.server import KfpServer
from tfopt.cli.main import main
from tfopt.errors import ComponentError
from tfopt.kfp.cron import Cron

RETRAIN = ["retrain", "--set", "data=s3://bucket/rows.csv", "--set", "module=s3://bucket/model.py"]
MONDAYS = ["--cron", "0 0 3 * * 1"]


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))
    with KfpServer() as running:
        yield running


def schedule(server: KfpServer, *words: str) -> int:
    return main(["schedule", *words, "--endpoint", server.url])


def test_a_schedule_starts_one_run_at_a_time_and_none_for_missed_times(server, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS, "--kfp-option", "root=s3://bucket/runs") == 0
    (recurring_run,) = server.kinds["recurringruns"].values()
    assert recurring_run["display_name"] == "retrain"
    assert recurring_run["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * 1"}}
    assert (recurring_run["max_concurrency"], recurring_run["no_catchup"], recurring_run["mode"]) == (1, True, "ENABLE")
    assert recurring_run["runtime_config"]["parameters"]["data_uri"] == "s3://bucket/rows.csv"
    assert recurring_run["runtime_config"]["pipeline_root"] == "s3://bucket/runs"
    assert "created: retrain: At 03:00, only on Monday (UTC)" in capsys.readouterr().out


def test_the_next_three_times_are_printed(server, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS, "--json") == 0
    times = [datetime.fromisoformat(time) for time in json.loads(capsys.readouterr().out)["next"]]
    assert len(times) == 3
    assert all((time.weekday(), time.hour, time.tzinfo) == (0, 3, UTC) for time in times)
    assert times[0] > datetime.now(UTC)


def test_an_equal_schedule_is_left_unchanged(server, capsys):
    for _ in range(3):
        assert schedule(server, *RETRAIN, *MONDAYS) == 0
    assert [line for line in server.requests if line == "POST /apis/v2beta1/recurringruns"] == [
        "POST /apis/v2beta1/recurringruns"
    ]
    assert "unchanged: retrain" in capsys.readouterr().out


CHANGES = [
    ["--cron", "0 0 4 * * 1"],
    [*MONDAYS, "--set", "epochs=3"],
    [*MONDAYS, "--kfp-option", "train:gpu=1", "--kfp-option", "train:image=gpu"],
    [*MONDAYS, "--kfp-option", "root=gs://bucket/runs"],
    [*MONDAYS, "--kfp-option", "service_account=other"],
    [*MONDAYS, "--experiment", "another"],
]


@pytest.mark.parametrize("changes", [CHANGES[:3], pytest.param(CHANGES[3:], marks=pytest.mark.nightly)])
def test_a_changed_schedule_replaces_only_the_one_of_its_name(changes, server, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    assert schedule(server, *RETRAIN, *MONDAYS, "--name", "another") == 0
    before = deepcopy(server.kinds)
    for change in changes:
        server.kinds = deepcopy(before)
        assert schedule(server, *RETRAIN, *change) == 0
        assert "replaced: retrain" in capsys.readouterr().out, change
        runs = server.kinds["recurringruns"]
        assert sorted(run["display_name"] for run in runs.values()) == ["another", "retrain"], change
        assert len(set(before["recurringruns"]) & set(runs)) == 1, change


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("max_concurrency", 5),
        *(pytest.param(*fact, marks=pytest.mark.nightly) for fact in (("no_catchup", False), ("service_account", "x"))),
    ],
)
def test_manual_changes_are_corrected(fact, value, server):
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    (recurring_run,) = server.kinds["recurringruns"].values()
    recurring_run[fact] = value
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    (recurring_run,) = server.kinds["recurringruns"].values()
    assert (recurring_run["max_concurrency"], recurring_run["no_catchup"], recurring_run.get("service_account")) == (
        1,
        True,
        None,
    )


def test_several_schedules_of_one_name_become_one(server):
    server.page_limit = 1
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    (recurring_run,) = server.kinds["recurringruns"].values()
    for copy in ("a", "b", "c"):
        server.kinds["recurringruns"][copy] = {**recurring_run, "recurring_run_id": copy}
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    assert len(server.kinds["recurringruns"]) == 1


def test_a_refused_replacement_leaves_the_old_schedule(server, monkeypatch, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    before = dict(server.kinds["recurringruns"])
    monkeypatch.setattr(server, "_create_recurring_run", lambda body, arguments: server._stored("experiments", "gone"))
    assert schedule(server, *RETRAIN, "--cron", "0 0 4 * * 1") == 1
    assert server.kinds["recurringruns"] == before
    assert "not found" in capsys.readouterr().err


def test_a_paused_schedule_stays_paused_when_it_is_replaced(server, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    assert schedule(server, "--pause", "--name", "retrain") == 0
    assert schedule(server, *RETRAIN, "--cron", "0 0 4 * * 1") == 0
    (recurring_run,) = server.kinds["recurringruns"].values()
    assert (recurring_run["mode"], recurring_run["status"]) == ("DISABLE", "DISABLED")
    assert "paused; --resume starts it" in capsys.readouterr().out
    assert schedule(server, "retrain", "--resume") == 0
    assert recurring_run["status"] == "ENABLED"


def test_delete_removes_only_the_schedule_of_the_name(server):
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    assert schedule(server, *RETRAIN, *MONDAYS, "--name", "another") == 0
    assert schedule(server, "--delete", "--name", "retrain") == 0
    assert [run["display_name"] for run in server.kinds["recurringruns"].values()] == ["another"]


def test_list_shows_the_schedules_of_all_pages_in_words(server, capsys):
    for name in ("a", "b", "c"):
        assert schedule(server, *RETRAIN, *MONDAYS, "--name", name) == 0
    assert schedule(server, "--pause", "--name", "c") == 0
    capsys.readouterr()
    assert schedule(server, "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines] == ["a", "b", "c"]
    assert all("At 03:00, only on Monday" in line for line in lines)
    assert [line.endswith("paused") for line in lines] == [False, False, True]
    assert schedule(server, "--list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[2] == {"name": "c", "cron": "0 0 3 * * 1", "paused": True}


@pytest.mark.parametrize("action", ["--pause", "--resume", "--delete"])
def test_an_unknown_name_is_reported_with_the_nearest_one(action, server, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS) == 0
    assert schedule(server, action, "--name", "retrian") == 1
    assert "did you mean retrain?" in capsys.readouterr().err


def test_a_multi_user_server_gets_the_namespace_in_every_request(server):
    server.multi_user = True
    words = [*RETRAIN, *MONDAYS, "--namespace", "ml-team"]
    assert schedule(server, *words) == 0
    assert schedule(server, "--pause", "--name", "retrain", "--namespace", "ml-team") == 0


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("0 3 * * 1", 'put the seconds first: "0 0 3 * * 1"'),
        ("0 0 3 * *", "put the seconds first"),
        ("@weekly", "1 fields"),
        ("0 0 3 * * 7", "Sunday is 0"),
        ("0 0 3 L * *", "what Kubeflow's scheduler supports"),
        ("0 0 3 ? * MON#1", "what Kubeflow's scheduler supports"),
        ("0 60 3 * * *", "out of range"),
        ("0 0 0 31 2 *", "an expression that some time matches"),
        ("a b c d e f", "an expression that some time matches"),
    ],
)
def test_a_cron_expression_that_kubeflow_does_not_support_is_refused(cron, message, server, capsys):
    assert schedule(server, *RETRAIN, "--cron", cron) == 1
    assert message in capsys.readouterr().err
    assert server.requests == []


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 30 2 * * MON-FRI", "At 02:30, Monday through Friday"),
        ("0 0 9 ? * 2-6", "At 09:00, Tuesday through Saturday"),
        ("0 0 3 ? JUL *", "At 03:00, only in July"),
        ("30 0 12 1 1 ?", "At 12:00:30, on day 1 of the month, only in January"),
    ],
)
def test_an_expression_is_described_in_words(cron, words):
    assert Cron.parse(cron).words == words


def test_next_times_follow_the_six_fields():
    times = Cron.parse("30 15 3 * * 1").next(datetime(2026, 1, 1, tzinfo=UTC))
    assert [time.isoformat() for time in times] == [
        "2026-01-05T03:15:30+00:00",
        "2026-01-12T03:15:30+00:00",
        "2026-01-19T03:15:30+00:00",
    ]


@pytest.mark.parametrize("name", ["  ", "x" * 129])
def test_a_name_that_kubeflow_would_refuse_is_refused(name, server, capsys):
    assert schedule(server, *RETRAIN, *MONDAYS, "--name", name) == 1
    assert "1 to 128 characters" in capsys.readouterr().err


def test_an_incomplete_command_is_wrong_usage(server):
    for words in (["retrain"], MONDAYS, ["--pause"], ["--list", "--pause"]):
        with pytest.raises(SystemExit) as stopped:
            schedule(server, *words)
        assert stopped.value.code == 2


def test_the_error_has_three_parts():
    with pytest.raises(ComponentError) as refused:
        Cron.parse("* * *")
    assert all((refused.value.received, refused.value.expected, refused.value.fix))
