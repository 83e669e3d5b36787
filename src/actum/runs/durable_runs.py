"""`rt.runs`: submit, look at, continue, fork, cancel and judge durable runs.

What carries a run out is imported when one is: submitting, listing and cancelling need the ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.documents.document import load_document
from actum.errors import ContractInvalid, Problem, Refused
from actum.evidence.owner import current_owner, is_alive
from actum.runs.contract.check import MISMATCH
from actum.runs.contract.difference import Difference, differences
from actum.runs.contract.fields import Config
from actum.runs.contract.material import EFFECTIVE
from actum.runs.contract.resolve import Resolved, fresh, requested_over
from actum.runs.dispatch.local_disk import require_local_disk
from actum.runs.dispatch.port import Dispatch
from actum.runs.folder_elsewhere import elsewhere
from actum.runs.governance import GateDecision, gate_decision
from actum.runs.model import Run, StepStatus
from actum.runs.new_run import forked, new_run, under_contract
from actum.runs.plan_seal import plan_of
from actum.runs.run_ledger import RunLedger
from actum.runs.run_plan import Plan, Validator, read_plan
from actum.runs.run_status import ACTIVE, AT_WORK, LOST_AFTER, RESUMABLE, RunStatus
from actum.runs.show import run_document
from actum.runs.stored_contract import stored_flaw
from actum.store.keys import PublicKey, Signer
from actum.store.whole_file import write_whole
from actum.value import replace, value
from actum.work.agents.agent_file import read_agent

if TYPE_CHECKING:
    from actum.execution.services import Clock
    from actum.runs.perform import OnEvent, Performer
    from actum.runs.rehearsal import Rehearsal
    from actum.runs.work_done import WorkDone
    from actum.runs.worker import Worker
    from actum.work.item_process import Stop
    from actum.work.work_items import WorkItems

_MOST_PRIORITY = 1_000
_WATCH_S = 1.0


class RunMismatch(Refused):
    """The requested configuration differs from the persisted one. Nothing was changed."""

    def __init__(self, run_id: str, found: tuple[Difference, ...]) -> None:
        lines = "\n".join(f"  {each}" for each in found)
        super().__init__(
            MISMATCH,
            f"Execution contract mismatch:\n{lines}\n",
            remedy="Nothing was changed. --override-execution-config changes this run's contract;"
            " --fork starts a new run.",
        )
        self.run_id = run_id
        self.differences = found

    def document(self) -> dict[str, Json]:
        return {
            "code": self.code,
            "kind": "requested",
            "runId": self.run_id,
            "diff": [each.document() for each in self.differences],
            "persisted": {each.field: each.persisted for each in self.differences},
            "requested": {each.field: each.requested for each in self.differences},
            "remedy": self.remedy,
        }


@value
class Runs:
    """The durable runs of one project."""

    root: Path
    home: Path
    ledger: RunLedger
    work_items: Callable[[], WorkItems]  #: built when a run is carried out, not to submit one
    performer: Callable[[OnEvent], Performer]
    dispatch: Callable[[], Dispatch]
    signer: Signer
    trusted: Mapping[str, PublicKey]
    clock: Clock
    login: str

    def submit(
        self,
        source: str | bytes | Path,
        *,
        config: Mapping[str, Json] | None = None,
        priority: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> Run:
        """Queue a run of a work file under a new contract; durable when this returns.

        `config` are fields of the contract, by the seed's names; `environ` may fill others
        (default: the environment of this process). Raises before anything is written.
        """
        if not -_MOST_PRIORITY <= priority <= _MOST_PRIORITY:
            raise Refused(
                "RUN_PRIORITY_INVALID",
                f"priority: {priority} is not within -{_MOST_PRIORITY} to {_MOST_PRIORITY}.",
                remedy="Nothing was submitted.",
            )
        require_local_disk(self.home)
        text, file = _text_of(source)
        self._require_parts(read_plan(text, file=file))
        return self._submitted(text, config or {}, environ, priority=priority)

    def _submitted(
        self,
        text: str,
        config: Mapping[str, Json],
        environ: Mapping[str, str] | None,
        *,
        priority: int = 0,
        claim_by: str | None = None,
    ) -> Run:
        run = new_run(
            text,
            fresh(config, os.environ if environ is None else environ),
            workspace=self.root,
            requested_by=f"user:{self.login}",
            priority=priority,
            at=self.clock(),
            signer=self.signer,
        )
        return self.ledger.create(run, "created", claim_by=claim_by)

    def in_foreground(
        self,
        source: str | bytes | Path,
        *,
        config: Mapping[str, Json] | None = None,
        at_once: int | None = None,
        new: bool = False,
        environ: Mapping[str, str] | None = None,
        on_event: OnEvent = lambda _event: None,
    ) -> WorkDone:
        """Carry out a work file in this process, and return when its run has ended.

        Continues the last run of the same file in this folder, if that has not completed, and
        repeats no item that was committed; `new` starts over. Ctrl-C cancels the run, which can be
        continued. Raises `RunMismatch` if `config` differs from the contract of the run that it
        would continue.
        """
        require_local_disk(self.home)
        text, file = _text_of(source)
        self._require_parts(read_plan(text, file=file))
        last = None if new else self.ledger.latest(sha256_bytes(text.encode()), str(self.root))
        if last is not None and last.status is not RunStatus.COMPLETE:
            undone = self._undone(last)
            if not undone:
                run = self._taken_up(last, config or {}, on_event)
                return self._in_foreground(run, at_once, on_event)
            on_event({"at": "not-continued", "run": last.run_id, "undone": list(undone)})
        run = self._submitted(text, config or {}, environ, claim_by=current_owner())
        on_event({"at": "begun", "run": run.run_id, "of": len(read_plan(text).items)})
        return self._in_foreground(run, at_once, on_event)

    def _in_foreground(self, run: Run, at_once: int | None, on_event: OnEvent) -> WorkDone:
        claimed = run if run.status is RunStatus.RUNNING else None
        others = [
            each
            for each in self.ledger.at_work()
            if each.workspace == run.workspace and self.ledger.is_here(each.run_id)
        ]
        if claimed is None and others:
            on_event({"at": "waiting", "run": run.run_id, "for": others[0].run_id})
        self.worker(on_event=on_event, at_once=at_once).work(run.run_id, claimed)
        return self.work_done(run.run_id)

    def _taken_up(self, run: Run, config: Mapping[str, Json], on_event: OnEvent) -> Run:
        """The last run of a file, claimed by this process or queued."""
        if run.status in AT_WORK and run.worker is not None and is_alive(run.worker):
            raise Refused(
                "RUN_ACTIVE",
                f"The run {run.run_id} of this file is {run.status.value} in another process.",
                remedy=f"Nothing was changed. `actum runs watch {run.run_id[:8]}` follows it,"
                f" `actum runs cancel {run.run_id[:8]}` ends it.",
            )
        persisted = self._persisted(run)
        found = differences(persisted, requested_over(persisted, config))
        if found:
            raise RunMismatch(run.run_id, found)
        steps = self.ledger.steps(run.run_id)
        plan = plan_of(run, steps, self.trusted)
        done = {step.item_id for step in steps if step.status is StepStatus.SUCCESS}
        on_event(
            {
                "at": "continuing",
                "run": run.run_id,
                "was": "interrupted" if run.status in AT_WORK else run.status.value,
                "committed": sum(item.id in done for item in plan.items),
                "of": len(plan.items),
            }
        )
        if run.status in AT_WORK:
            self.ledger.bring_back(run, lost_after=LOST_AFTER)
            run = self.get(run.run_id)
        if run.status in RESUMABLE:
            return self._requeued(run, None, claim_by=current_owner())
        return run

    def plan(self, run_id: str) -> Plan:
        """The items and validators of a run; without items, if its planner has not answered."""
        run = self.get(run_id)
        return plan_of(run, self.ledger.steps(run_id), self.trusted)

    def work_done(self, run_id: str) -> WorkDone:
        """The outcome of each item of a run."""
        from actum.runs.work_done import work_done

        run, steps = self.get(run_id), self.ledger.steps(run_id)
        plan = plan_of(run, steps, self.trusted)
        return work_done(run, plan, steps, self.work_items().records)

    def rehearse(
        self,
        source: str | bytes | Path,
        *,
        config: Mapping[str, Json] | None = None,
        at_once: int | None = None,
        environ: Mapping[str, str] | None = None,
        stop: Stop | None = None,
    ) -> Rehearsal:
        """The outcome that each item of a work file would have in a new run, on a copy of the
        project. Commits and records nothing. `config` and `environ` as for `submit`; `stop`
        ends the items at work and begins no other."""
        from actum.runs.rehearsal import rehearse

        text, file = _text_of(source)
        plan = read_plan(text, file=file)
        resolved = fresh(config or {}, os.environ if environ is None else environ)
        self._require_parts(plan)
        performer = self.performer(lambda _event: None)
        at_once = at_once or performer.at_once
        return rehearse(plan, resolved.config, performer.work_items, at_once, stop)

    def get(self, run_id: str) -> Run:
        """One run; raises `Refused` if there is none."""
        run = self.ledger.find(run_id)
        if run is None:
            raise Refused(
                "RUN_UNKNOWN",
                f"There is no run {run_id[:80]!r} in this home.",
                remedy="`actum runs list` shows those there are.",
            )
        return run

    def list(self, *, status: str | None = None, limit: int = 50) -> tuple[Run, ...]:
        return self.ledger.listed(None if status is None else RunStatus(status), limit)

    def status(self, run_id: str) -> dict[str, Json]:
        """Everything about a run, with its contract checked as a worker checks it."""
        run = self.get(run_id)
        return run_document(run, self.ledger.steps(run_id), stored_flaw(run, self.trusted))

    def resume(
        self,
        run_id: str,
        *,
        config: Mapping[str, Json] | None = None,
        override: bool = False,
        fork: bool = False,
    ) -> Run:
        """Continue a run under its persisted contract, or under another one.

        A `config` that differs needs `override`, which changes this run's contract, or `fork`,
        which starts a new run. Raises `RunMismatch` without either; then nothing was changed.
        """
        if override and fork:
            raise Refused(
                "RUN_FLAGS_CONFLICT",
                "--override-execution-config and --fork exclude each other.",
                remedy="Nothing was changed. Give one of them.",
            )
        require_local_disk(self.home)
        run = self.get(run_id)
        self._require_here(run)
        if run.revision == 0 and not run.contract:
            return self._attach(run, config or {})
        persisted = self._persisted(run)
        wanted = requested_over(persisted, config or {})
        found = differences(persisted, wanted)
        if found and not (override or fork):
            raise RunMismatch(run_id, found)
        self._require_resumable(run, fork=fork)
        self._require_standing(run)
        if fork:
            return self._fork(run, Resolved(config=wanted))
        if not found:
            return self._requeued(run, None)
        return self._requeued(
            under_contract(run, Resolved(config=wanted), self.signer), "overridden"
        )

    def cancel(self, run_id: str, *, by: str | None = None) -> Run:
        """Ask for the end of a run. A queued one ends now, a running one when its worker sees
        it."""
        run = self.get(run_id)
        asked = self.ledger.cancel(run_id, by or f"user:{self.login}")
        if asked is None:
            raise Refused(
                "RUN_ENDED",
                f"The run {run_id} is {run.status.value} already.",
                remedy="Nothing was changed.",
            )
        return asked

    def gate(self, run_id: str) -> GateDecision:
        """The governance decision about a run, recorded and written to `.actum/decisions/`."""
        run = self.get(run_id)
        self._require_here(run)
        steps = self.ledger.steps(run_id)
        receipts = [step.receipt_id for step in steps if step.receipt_id is not None]
        ended = run.status is RunStatus.COMPLETE
        state = self.work_items().state_hash() if ended else None
        decision = gate_decision(run, stored_flaw(run, self.trusted), receipts, state)
        text = json.dumps(dict(decision.document), indent=2) + "\n"
        self.ledger.record_decision(run_id, decision.hash, json.dumps(dict(decision.document)))
        folder = self.home / "decisions"
        folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(folder / f"{decision.hash}.json", text.encode(), synced=True)
        write_whole(folder / "latest.json", text.encode(), synced=True)
        return decision

    def worker(
        self,
        *,
        concurrency: int = 1,
        at_once: int | None = None,
        on_event: OnEvent = lambda _event: None,
    ) -> Worker:
        """A worker for `concurrency` runs at a time, with `at_once` items each."""
        from actum.runs.worker import Worker

        def performer(hear: OnEvent) -> Performer:
            made = self.performer(hear)
            return made if at_once is None else replace(made, at_once=at_once)

        return Worker(
            root=self.root,
            ledger=self.ledger,
            dispatch=self.dispatch(),
            performer=performer,
            trusted=self.trusted,
            concurrency=concurrency,
            on_event=on_event,
        )

    def work(self, run_id: str, *, on_event: OnEvent = lambda _event: None) -> Run:
        """Carry a run out in this process, unless a worker does, and return it when it has
        ended. Ctrl-C cancels it."""
        self._require_here(self.get(run_id))
        self.worker(on_event=on_event).work(run_id)
        return self.get(run_id)

    def validate(self, run_id: str) -> bool:
        """Run the heavy validators of a complete run once more, and record the verdict."""
        run = self.get(run_id)
        self._require_here(run)
        if run.status is not RunStatus.COMPLETE:
            raise Refused(
                "RUN_NOT_COMPLETE",
                f"The run {run_id} is {run.status.value}.",
                remedy="Nothing ran. Only a complete run can be validated.",
            )
        self._persisted(run)
        plan = read_plan(run.source)
        if not plan.heavy:
            raise Refused(
                "RUN_NOT_VALIDATED",
                f"The work file of the run {run_id} has no heavy validator.",
                remedy="Nothing ran. Add `run: {heavy: [...]}` to the work file and submit it.",
            )
        self._require_state(run)
        passed = self.performer(lambda _event: None).heavy_verdict(plan)
        self._require_state(run)  # a verdict about another state is no verdict about this run
        self.ledger.validated(run, "passed" if passed else "failed")
        return passed

    def watch(self, run_id: str) -> Iterator[str]:
        """A line for each change of a run, until it has ended."""
        for event in self.follow(run_id):
            if event["at"] == "run":
                yield f"run {event['status']}"
            else:
                name = f" {event['item']}" if event["item"] else ""
                yield f"{event['kind']}{name} {event['status']}"

    def follow(self, run_id: str) -> Iterator[dict[str, Any]]:
        """The changes of a run as its ledger shows them, until it has ended: ``{"at": "run",
        "status": ...}`` and ``{"at": "step", "kind": ..., "item": ..., "status": ...}``."""
        shown = ""
        told: set[tuple[int, str]] = set()
        with self.dispatch().changes() as changes:
            while True:
                run = self.get(run_id)
                for step in self.ledger.steps(run_id):
                    word = step.state.value if step.status is None else step.status.value
                    if (step.step_index, word) not in told:
                        told.add((step.step_index, word))
                        yield {
                            "at": "step",
                            "run": run_id,
                            "index": step.step_index,
                            "kind": step.kind.value,
                            "item": step.item_id,
                            "attempt": step.attempt,
                            "status": word,
                            "codes": list(step.reasons),
                            "receiptId": step.receipt_id,
                        }
                if run.status.value != shown:
                    shown = run.status.value
                    yield {"at": "run", "run": run_id, "status": shown, "code": run.error_code}
                if run.ended_at is not None:
                    return
                changes.wait(_WATCH_S)

    def _require_here(self, run: Run) -> None:
        """Refuse what needs the folder of a run that was submitted in another project."""
        if not self.ledger.is_here(run.run_id):
            raise elsewhere(run.run_id, run.workspace)

    def _require_parts(self, plan: Plan) -> None:
        """Refuse a plan with an agent that does not exist or a validator that cannot be asked: the
        work file is sealed, so `continue` could not repair it. Files of agents are governing
        names, which no item makes."""
        named = {item.agent_id for item in plan.items}
        named |= set() if plan.corrector is None else {plan.corrector}
        named |= set() if plan.planner is None else {plan.planner.agent}
        for agent_id in sorted(named):
            read_agent(self.root, agent_id)
        for kind, validators in (("light", plan.light), ("heavy", plan.heavy)):
            for number, validator in enumerate(validators):
                where = f"run.{kind}[{number}]"
                if validator.id in [each.id for each in validators[:number]]:
                    problem = Problem(
                        field=f"{where}.id",
                        message=f"{validator.id}: several validators have this id.",
                        value=validator.id,
                        permitted="an id of its own",
                    )
                    raise ContractInvalid((problem,))
                self._require_validator(where, validator)

    def _require_validator(self, where: str, validator: Validator) -> None:
        from actum.contract.parse import parse_contract
        from actum.contract.request import ExecRequest
        from actum.execution.request_document import request_document

        registry = self.work_items().services.registry
        fields: dict[str, Any] = {**validator.request, "cwd": str(self.root)}
        registry.find_tool(str(fields["tool"]).partition(":")[0])  # raises for one that is not
        try:
            parse_contract(request_document(ExecRequest(**fields), registry))
        except ContractInvalid as error:
            raise ContractInvalid(
                tuple(
                    replace(problem, field=f"{where}.{problem.field}") for problem in error.problems
                )
            ) from error

    def _attach(self, run: Run, config: Mapping[str, Json]) -> Run:
        """A run of an older version gets its contract now, by the same rules as a new one but
        without the environment: the result depends on the request alone."""
        self._require_resumable(run, fork=False)
        attached = under_contract(run, fresh(config, {}), self.signer)
        return self._requeued(attached, "attached")

    def _persisted(self, run: Run) -> Config:
        flaw = stored_flaw(run, self.trusted)
        if flaw is not None:
            raise Refused(flaw.code, flaw.message, remedy="Nothing was changed.")
        config: Config = run.contract[EFFECTIVE]
        return config

    def _requeued(self, run: Run, cause: str | None, *, claim_by: str | None = None) -> Run:
        queued = self.ledger.requeue(run, cause, claim_by=claim_by)
        if queued is None:
            raise Refused(
                "RUN_ACTIVE",
                f"The run {run.run_id} was continued by another command.",
                remedy="Nothing was changed.",
            )
        return queued

    def _fork(self, run: Run, resolved: Resolved) -> Run:
        state = self.work_items().state_hash()
        if run.current_state is not None and state != run.current_state:
            raise Refused(
                "WORKSPACE_MOVED",
                f"The folder {run.workspace} is not in the state that the run {run.run_id} left.",
                remedy="A fork takes over finished steps, so it needs their state. Undo the later"
                " changes, or submit a new run.",
            )
        steps = self.ledger.steps(run.run_id)
        plan_of(run, steps, self.trusted)  # raises for an edited plan: the fork's is signed again
        new, adopted = forked(
            run,
            steps,
            resolved,
            requested_by=f"user:{self.login}",
            at=self.clock(),
            signer=self.signer,
        )
        self.ledger.create(new, "forked", adopted)
        return new

    def _require_state(self, run: Run) -> None:
        """The gate pairs the verdict with `current_state`, so the validators have to see it."""
        if self.work_items().state_hash() != run.current_state:
            raise Refused(
                "WORKSPACE_MOVED",
                f"The folder {run.workspace} is not in the state that the run {run.run_id} left.",
                remedy="No verdict was recorded. Undo the later changes, or submit a new run.",
            )

    def _require_standing(self, run: Run) -> None:
        """A continued run repeats no committed item, so none of them may be undone."""
        undone = self._undone(run)
        if undone:
            raise Refused(
                "RUN_STEP_UNDONE",
                f"{', '.join(undone[:5])} of the run {run.run_id} was undone since.",
                remedy="Nothing was changed. Undo the undo, or submit a new run.",
            )

    def _undone(self, run: Run) -> tuple[str, ...]:
        """Items of a run that were committed and undone since."""
        records = self.work_items().records
        return tuple(
            str(step.item_id)
            for step in self.ledger.steps(run.run_id)
            if step.work_run_id is not None
            and step.status is StepStatus.SUCCESS
            and not records.stands(step.work_run_id)
        )

    def _require_resumable(self, run: Run, *, fork: bool) -> None:
        if run.status in RESUMABLE or (fork and run.status is RunStatus.COMPLETE):
            return
        if run.status in ACTIVE:
            raise Refused(
                "RUN_ACTIVE",
                f"The run {run.run_id} is {run.status.value}.",
                remedy="Nothing was changed. Wait for its end, or cancel it first.",
            )
        raise Refused(
            "RUN_COMPLETE",
            f"The run {run.run_id} is complete.",
            remedy="Nothing was changed. --fork starts a new run from its state.",
        )


def _text_of(source: str | bytes | Path) -> tuple[str, str]:
    """The work file's own text, which the run stores and whose digest the seal holds, and the
    name of the file for problems in it."""
    if isinstance(source, str) and source.endswith((".yaml", ".yml")) and "\n" not in source:
        raise ContractInvalid(
            (
                Problem(
                    field="source",
                    message=f'"{source[:80]}" is the name of a file, and text is taken as the'
                    " content of one.",
                    permitted="pathlib.Path(name), or the text of a work file",
                ),
            )
        )
    if isinstance(source, str):
        return source, ""
    file = str(source) if isinstance(source, Path) else ""
    try:
        content = source.read_bytes() if isinstance(source, Path) else source
    except OSError as error:
        message = f"cannot be read: {error.strerror}. Check the path."
        raise ContractInvalid(
            (Problem(field="", message=message, value=file, file=file),)
        ) from error
    load_document(content, file=file)  # raises for what is no UTF-8, with its place
    return content.decode(), file
