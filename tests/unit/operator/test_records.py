"""What is remembered of a custom resource between passes."""

from knfleet.apply.observe.readiness import ObjectReadiness, ReadinessState, SetReadiness
from knfleet.apply.refs import Ref
from knfleet.operator.installation_record import FIRST_JOBS_SECONDS, InstallationRecord

JOB = ObjectReadiness(
    Ref("batch", "Job", "home", "migrate"), ReadinessState.PROGRESSING, "it is not complete"
)
READY = ObjectReadiness(Ref("apps", "Deployment", "home", "web"), ReadinessState.READY)
UNREADY = ObjectReadiness(Ref("apps", "Deployment", "home", "web"), ReadinessState.PROGRESSING)


def test_jobs_have_time_from_when_everything_else_works() -> None:
    """However long workloads took; a workload that fails later gives them no more of it."""
    record = InstallationRecord({"metadata": {"name": "knative", "namespace": "home", "uid": "1"}})

    assert record.leaves_time(SetReadiness((UNREADY, JOB)), 1000.0)
    assert record.leaves_time(SetReadiness((READY, JOB)), 2000.0)
    assert record.leaves_time(SetReadiness((READY, JOB)), 1999.0 + FIRST_JOBS_SECONDS)
    assert not record.leaves_time(SetReadiness((READY, JOB)), 2000.0 + FIRST_JOBS_SECONDS)
    assert not record.leaves_time(SetReadiness((UNREADY, JOB)), 2001.0 + FIRST_JOBS_SECONDS)
