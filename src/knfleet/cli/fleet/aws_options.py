"""What the flags of registration by AWS roles say, checked."""

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from knfleet.api.aws_registration import HubAwsIrsa
    from knfleet.aws.eks_arns import RegistrationRoles


def names_of(text: str) -> tuple[str, ...]:
    """Names as a,b."""
    return tuple(name for name in text.split(",") if name)


def patterns_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Regular expressions as a,b; a comma between braces is a part of one."""
    found = [each for text in texts for each in re.split(r",(?![^{}]*\})", text)]
    return tuple(each for each in found if each)


def aws_of(options: dict[str, Any]) -> "HubAwsIrsa | None":
    """How clusters register by AWS roles, if they may."""
    from knfleet.api.aws_registration import HubAwsIrsa, pattern_problem, tags_of
    from knfleet.aws.eks_arns import ArnProblem, EksArn

    arn, patterns = options["hub_arn"], patterns_of(options["arn_patterns"])
    tags = names_of(options["aws_tags"])
    if "awsirsa" not in names_of(options["drivers"]):
        if arn or patterns or tags:
            raise click.UsageError("flags of AWS need --registration-drivers awsirsa")
        return None
    if not arn:
        raise click.UsageError("--registration-drivers awsirsa needs --hub-cluster-arn")
    try:
        EksArn.of(arn)
        tags_of(list(tags))
    except ArnProblem as error:
        raise click.UsageError(f"--hub-cluster-arn: {error}") from error
    except ValueError as error:
        raise click.UsageError(f"--aws-resource-tags: {error}") from error
    for pattern in patterns:
        if problem := pattern_problem(pattern):
            raise click.UsageError(f"--auto-approved-arn-patterns {pattern[:200]}: {problem}")
    return HubAwsIrsa(hub_cluster_arn=arn, auto_approved_identities=list(patterns), tags=list(tags))


def roles_of(auth: str, hub: str, managed: str) -> "RegistrationRoles | None":
    """The EKS clusters that the flags name; both with awsirsa, and none otherwise."""
    from knfleet.aws.eks_arns import ArnProblem, EksArn, RegistrationRoles

    if auth != "awsirsa":
        if hub or managed:
            raise click.UsageError(
                "--hub-cluster-arn and --managed-cluster-arn need --registration-auth awsirsa"
            )
        return None
    if not hub or not managed:
        raise click.UsageError(
            "--registration-auth awsirsa needs --hub-cluster-arn and --managed-cluster-arn"
        )
    found: list[EksArn] = []
    for flag, text in (("--hub-cluster-arn", hub), ("--managed-cluster-arn", managed)):
        try:
            found.append(EksArn.of(text))
        except ArnProblem as error:
            raise click.UsageError(f"{flag}: {error}") from error
    if found[0] == found[1]:
        raise click.UsageError("--managed-cluster-arn is the hub itself; name this cluster's ARN")
    return RegistrationRoles(*found)
