"""What is remembered of a custom resource between passes."""

from knfleet.apply.observe.readiness import Health, State, Summary
from knfleet.apply.refs import Ref
from knfleet.operator.installation_record import FIRST_JOBS_SECONDS, Record

JOB = Health(Ref("batch", "Job", "home", "migrate"), State.PROGRESSING, "it is not complete")
READY = Health(Ref("apps", "Deployment", "home", "web"), State.READY)
UNREADY = Health(Ref("apps", "Deployment", "home", "web"), State.PROGRESSING)


def test_jobs_have_time_from_when_everything_else_works() -> None:
    """However long workloads took; a workload that fails later gives them no more of it."""
    record = Record({"metadata": {"name": "knative", "namespace": "home", "uid": "1"}})

    assert record.leaves_time(Summary((UNREADY, JOB)), 1000.0)
    assert record.leaves_time(Summary((READY, JOB)), 2000.0)
    assert record.leaves_time(Summary((READY, JOB)), 1999.0 + FIRST_JOBS_SECONDS)
    assert not record.leaves_time(Summary((READY, JOB)), 2000.0 + FIRST_JOBS_SECONDS)
    assert not record.leaves_time(Summary((UNREADY, JOB)), 2001.0 + FIRST_JOBS_SECONDS)
