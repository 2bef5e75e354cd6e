"""Network addresses that no download may reach.

Link-local addresses hold the metadata services of clouds, which hand out credentials to whoever
asks from the right machine; a few such services live elsewhere and are listed by name.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

METADATA = frozenset(
    ip_address(address) for address in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")
)
"""Metadata services of AWS (IPv6), Alibaba and Azure, which are not link-local."""

NAT64 = ip_network("64:ff9b::/96")


def is_literal(host: str) -> bool:
    """Whether a host is written as an address, not as a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_forbidden(address: str) -> bool:
    """Whether an address is link-local, a metadata service, or stands for one."""
    parsed = ip_address(address.partition("%")[0])
    return any(
        form.is_link_local or form.is_multicast or form in METADATA for form in forms(parsed)
    )


def forms(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """The address, and the IPv4 address that an IPv6 one wraps, if it does."""
    if isinstance(address, IPv4Address):
        return [address]
    teredo = address.teredo[1] if address.teredo else None
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None
    wrapped = [address.ipv4_mapped, address.sixtofour, teredo, nat64]
    return [address, *(form for form in wrapped if form is not None)]


class AddressGuard:
    """Makes sockets for allowed addresses, and remembers the one that it refused."""

    def __init__(self) -> None:
        self.refused = ""

    def socket(self, address_info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
        """A socket that is about to be connected to an address."""
        family, kind, protocol, _, address = address_info
        if is_forbidden(str(address[0])):
            self.refused = str(address[0])
            raise PermissionError(f"{self.refused} is not allowed")
        return socket.socket(family, kind, protocol)
