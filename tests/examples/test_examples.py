"""The examples run, end as they say, and leave nothing behind.

The environment decides which server they use, so most of them run only on the embedded store.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 800  # far more than an example takes, even on a busy machine
ROUNDING = 0.01  # in the seconds that the examples print

Run = Callable[..., str]


@pytest.fixture(params=[pytest.param("embedded store", marks=pytest.mark.full)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """``run(name, *arguments)``: run an example, check that it succeeds, and return what it printed."""
    server: RedisServer | None = request.getfixturevalue("redis_server") if request.param == "server" else None

    def run(name: str, *arguments: str) -> str:
        done = execute(name, *arguments, folder=tmp_path, **({"DELAYQ_URL": server.url} if server else {}))
        assert done.returncode == 0, done.stdout + done.stderr
        assert [path.name for path in tmp_path.iterdir()] == []
        assert server is None or queues_on(server) != []
        return done.stdout

    return run


def execute(name: str, *arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an example in `folder`, which also gets its temporary files."""
    path = EXAMPLES / name
    runner = sys.executable if path.suffix == ".py" else "sh"
    kept = {key: value for key, value in os.environ.items() if key not in {"DELAYQ_URL", "DELAYQ_HOME"}}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [runner, str(path), *arguments],
        cwd=folder,
        env=kept | {"PATH": programs, "TMPDIR": str(folder)} | variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def queues_on(server: RedisServer) -> list[bytes]:
    with server.client() as client:
        return list(client.scan_iter(match="*:meta"))


def second(line: str, printed: str) -> float:
    """Return when an example printed a line that begins with this text."""
    match = re.search(rf"^ *(\d+\.\d+)s  {re.escape(line)}", printed, re.MULTILINE)
    assert match, f"no line {line!r} in:\n{printed}"
    return float(match[1])


def test_unpaid_orders_are_cancelled_when_their_time_is_up(run: Run):
    printed = run("order_timeout.py", "--after", "3")
    assert second("order-1 is paid: its message is cancelled", printed) < second("order-2 is cancelled", printed)
    for before, order in (("order-1", "order-2"), ("order-2", "order-3")):  # an order is placed after the previous one
        gap = second(f"{order} is cancelled: not paid in time", printed) - second(f"{before} is placed, to be", printed)
        assert gap >= 3 - ROUNDING
    assert second("order-3 was already placed", printed) < second("order-3 is refused: too late to pay", printed)
    assert printed.count("is cancelled: not paid in time") == 2
    assert "order-1: paid\norder-2: cancelled\norder-3: cancelled\n" in printed


@pytest.mark.full
def test_time_to_pay_that_is_too_short_is_refused(tmp_path: Path):
    done = execute("order_timeout.py", "--after", "0", folder=tmp_path)
    assert done.returncode == 2
    assert "0.1 or more" in done.stderr


@pytest.mark.full
def test_tests_of_an_example_pass_without_a_server(tmp_path: Path):
    done = execute("test_trial.py", folder=tmp_path, DELAYQ_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == []


def test_answer_of_the_receiver_decides_about_each_webhook(run: Run):
    printed = run("webhook_retry.py")
    assert re.findall(r"^(/\S+) +(.*), \d+ requests?$", printed, re.MULTILINE) == [
        ("/fine", "delivered"),
        ("/flaky", "delivered"),
        ("/slow", "delivered"),
        ("/busy", "delivered"),
        ("/gone", "dead: 410 Gone"),
        ("/broken", "dead: retries-exhausted"),
    ]
    assert second("/flaky   request 1: 500", printed) < second("/flaky   request 3: 200", printed)
    assert second("/slow    request 1: no answer", printed) < second("/slow    request 2: 200", printed)
    assert second("/broken  request 4: 500", printed) > second("/broken  request 3: 500", printed)
    assert "/gone    request 2" not in printed
    asked = second("/busy    request 1: 429", printed)
    assert second("/busy    request 2: 200", printed) - asked >= 1 - ROUNDING  # as its Retry-After said


def test_task_is_retried_chained_or_refused_as_it_says(run: Run):
    lines = run("tasks.py").splitlines()
    assert sorted(lines[1:-1]) == [
        "order 1: 12.10 paid in attempt 2",
        "order 1: packed in 1 box",
        "order 2: packed in 3 boxes",
        "order 3: shipped to Berlin on Thursday",
    ]
    assert lines[0].startswith("refused: ")
    assert lines[-1] == "dead: not-retried: ValueError: order 4 has no address"


def test_no_tenant_has_more_than_its_share_and_the_small_ones_are_served_first(run: Run):
    lines = re.findall(r"^(\w+) +(\d+) jobs, at most (\d) at a time; .* number (\d+)$", run("tenants.py"), re.MULTILINE)
    assert [(tenant, count) for tenant, count, _, _ in lines] == [("big", "100"), ("middle", "10"), ("small", "1")]
    assert [most for _, _, most, _ in lines] == ["2", "2", "1"]
    assert lines[0][3] == "111"


def test_slow_services_are_asked_at_the_same_time(run: Run):
    printed = run("async_fetch.py", "--services", "100")
    assert "100 services answered, 10 on the second try\n" in printed


def test_exit_code_of_a_program_decides_about_its_job(run: Run):
    printed = run("exec_jobs.sh")
    first, retry, left = re.split(r"^-- .*\n", printed, flags=re.MULTILINE)[1:]
    made = ["cat: made cat.jpg small in attempt 1", "dog: made dog.jpg huge in attempt 2"]
    assert sorted((first + retry).splitlines()) == made
    assert re.search(r"^state +dead$", left, re.MULTILINE)
    assert re.search(r"^error +Reject: exit code 65: notes.txt is not a picture$", left, re.MULTILINE)
    assert left.endswith("cancelled notes\n")


def test_event_of_an_unknown_type_is_a_dead_letter_and_middleware_counts_all(run: Run):
    lines = run("typed_events.py").splitlines()
    assert sorted(lines[:3]) == [
        "order 1 is paid: 12.10",
        "order 1 is shipped on Thursday in 2 parcels",
        "order 2 is shipped on Monday in 1 parcel",
    ]
    assert lines[3].startswith("dead: order 3 is paid with 0: Reject: ")
    assert lines[4].startswith("dead: payload-mismatch: PayloadMismatch: ")
    assert lines[4].endswith("Expected `int`, got `str` - at `$.order`")
    assert lines[5:] == ["coffee-shop: 1 Reject", "tea-shop: 1 PayloadMismatch", "tea-shop: 3 done"]


def test_reports_are_written_in_batches_and_only_invalid_ones_are_refused(run: Run):
    lines = run("batches.py", "--reports", "1000").splitlines()
    batches, most = map(int, re.findall(r"1000 reports, handled in (\d+) batches of up to (\d+)", lines[0])[0])
    assert batches < 20
    assert most == 500
    assert lines[1:] == ["cellar: 498 rows", "new: 2 rows", "roof: 499 rows", "dead: 'warm' is not a number"]


@pytest.mark.parametrize("run", ["server", pytest.param("embedded store", marks=pytest.mark.full)], indirect=True)
def test_report_of_a_group_runs_after_all_parts(run: Run):
    *parts, report = run("group.py").strip().split(", ")
    assert sorted(parts) == ["2 words", "3 words", "4 words"]
    assert report == "report on 3 parts"


def test_program_gets_what_its_tasks_return_or_raise(run: Run):
    lines = run("results.py").splitlines()
    assert lines[:2] == ["Paris: 105.4", "Atlantis: KeyError, not-retried"]
    assert lines[2].startswith("Rome: ")
    assert lines[3:] == ["Paris took 2 attempts"]


def test_each_step_of_a_chain_sends_the_next_one_once(run: Run):
    printed = run("chain.py")
    for order in ("order-1", "order-2", "order-3"):
        assert re.findall(rf"{order}: (\w+)$", printed, re.MULTILINE) == ["reserve", "charge", "pack", "ship"]
    assert second("order-2: charge failed", printed) < second("order-2: pack", printed)
    assert printed.endswith("3 orders, 4 steps each: 12 messages sent, 12 acked\n")


def test_receipts_are_those_of_committed_orders(run: Run):
    assert run("outbox.py").splitlines() == [
        "rolled back: 'nowhere' is not an address",
        "2 messages sent",
        "receipt of order 1 to ann@example.org",
        "receipt of order 2 to bob@example.org",
    ]


def test_mails_go_no_faster_than_the_rate_even_after_it_changes(run: Run):
    assert run("rate_limit.py").endswith("at first up to 5 in any half second, then up to 20\n")


@pytest.mark.full
@pytest.mark.parametrize("run", ["server"], indirect=True)  # docs/processes.md runs a pool on the embedded store
def test_handler_that_never_ends_or_crashes_fails_only_its_own_message(run: Run):
    counted, *dead = run("pool.py", "--ranges", "10", "--timeout", "9").splitlines()
    assert counted.startswith("5133 primes below 50000, counted in ")
    assert dead == [
        "dead: ProcessDied: its process was killed by SIGSEGV",
        "dead: TimeoutError: the handler took longer than 9 s: its process was killed",
    ]


@pytest.mark.full
@pytest.mark.timeout(900)  # seconds: it is a Spark program
def test_each_user_is_reminded_once_at_nine_while_redis_holds_hours(redis_server: RedisServer, tmp_path: Path):
    words = ["--users", "20000", "--days", "1"]
    done = execute("pipeline/reminders.py", *words, folder=tmp_path, DELAYQ_URL=redis_server.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == []
    assert done.stdout.endswith("20,000 of 20,000 users were reminded once, at nine o'clock local time\n")
    assert "reported    20,000 sent, 20,000 acked, at most 0 s late\n" in done.stdout
    (most,) = re.findall(r"at most ([\d,]+) in Redis at once", done.stdout)
    assert int(most.replace(",", "")) < 20_000 / 4


def test_every_example_is_run_by_a_test():
    source = Path(__file__).read_text()
    run = set(re.findall(r'(?:run|execute)\("(.+?)"', source))
    there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".sh"}}
    by_others = {path for path in there if path.startswith("django_site/")}  # tests/django/test_example.py
    by_others |= {"fastapi_app.py", "flask_app.py", "litestar_app.py"}  # test_web_applications.py
    by_others |= {"deploy/healthcheck.py"}  # test_deploy.py
    assert there - by_others == run


def test_announced_slots_are_those_that_are_handled(run: Run):
    printed = run("reports.py", "--slots", "4")
    _, listed, handled = re.split(r"^(?:the next|handled:).*\n", printed, flags=re.MULTILINE)
    slots = listed.splitlines()
    assert len(slots) == 4
    assert {slot.split()[1] for slot in slots} >= {"short", "tally"}  # and the nightly one, when it is night
    assert [slot for slot in slots if f"{slot}: " not in handled] == []
    assert "all of the 4 slots were handled, 0 of them twice" in handled


def test_burst_ends_in_one_save_and_one_alarm(run: Run):
    printed = run("quiet_alarms.py", "--keystrokes", "5", "--pause", "6")
    assert "10 keystrokes: saved ['Dear', 'Dear reader']\n10 failures: 2 alarms\n" in printed


def test_urgent_queue_is_served_first(run: Run):
    """The shares of the others depend on how long fetches take; tests/contract/test_several_queues.py checks them."""
    printed = run("urgent_first.py")
    assert "strict: 10 of the first 10 were login codes\n" in printed
    assert "the rest: 100\n" in printed


def test_every_group_gets_every_order_and_fails_on_its_own(run: Run):
    printed = run("fan_out.py", "--orders", "4")
    for line in ("billing  order-3: 10.03", "mail     order-1: sent with delivery 2", "search   order-4: indexed"):
        assert f"{line}\n" in printed
    assert "billing  order-2" not in printed
    assert "4 orders, handled by billing, mail and search: 4, 5 and 4 deliveries\n" in printed
    assert "dead letters of billing: order-2; 4 records trimmed, 0 left\n" in printed


def test_ledger_shows_what_happened_to_each_payment(run: Run):
    printed = run("audit.py")
    assert re.search(r"^ann: sent; promoted.*; delivered.*; acked$", printed, re.MULTILINE)
    assert re.search(r"^ben: sent; .*; nacked: TimeoutError: [^;]*; delivered.*; acked$", printed, re.MULTILINE)
    assert re.search(r"^nobody: sent; .*; died: .*no such customer$", printed, re.MULTILINE)
    assert "alarms: 1, Reject: no such customer" in printed
