"""`knfleet verify-server`: what our own image runs in verifications."""

import click


@click.command()
@click.option("--text", default="ok", help="Text of the answer.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8080, envvar="PORT", help="Where to listen."
)
def command(text: str, port: int) -> None:
    """Answer requests with a text, and log their paths; `knfleet verify` runs it in a pod.

    It answers GET with the text, and POST, as for events, with 202.
    """
    from knfleet.operator.verification.verify_server import serve
    from knfleet.runtime.http.listen_address import bind_host

    serve(bind_host() or "", port, text)
