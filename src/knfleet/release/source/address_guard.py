"""Network addresses that no download may reach.

Link-local addresses hold the metadata services of clouds, which give credentials to any client on
the right machine; a few such services live elsewhere and are listed one by one. An IPv6 address may
stand for an IPv4 one in several ways, which are all looked at.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

FORBIDDEN = tuple(
    ip_network(network)
    for network in (
        "169.254.0.0/16",  # link-local
        "fe80::/10",
        "fec0::/10",  # site-local, which link-local addresses once were mixed with
        "224.0.0.0/4",  # multicast
        "ff00::/8",
        "fd00:ec2::/32",  # services of AWS, of which ::254 is the metadata
        "fd20:ce::254",  # Google Cloud
        "fd00:c1::a9fe:a9fe",  # Oracle Cloud
        "192.0.0.192",
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure
        "fd00:42::42",  # Scaleway
    )
)
"""Networks that are closed: link-local, multicast, and metadata services elsewhere."""

OWN = tuple(ip_network(network) for network in ("127.0.0.0/8", "0.0.0.0/8", "::1", "::"))
"""Networks that lead to the machine or the pod itself: loopback, and addresses of no machine."""

LAST_BITS = tuple(
    ip_network(network)
    for network in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of a site
    )
)
"""Networks whose addresses end in the IPv4 address that they stand for."""
SITE_NAT64 = ip_network("64:ff9b:1::/48")
ISATAP = (0x00005EFE, 0x02005EFE)
"""What stands before the IPv4 address in the second half of an IPv6 address."""


def is_literal(host: str) -> bool:
    """Whether a host is written as an address, not as a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_forbidden(address: str, *, loopback: bool = True) -> bool:
    """Whether an address is link-local, a metadata service, or stands for one.

    Without `loopback`, those of the machine itself are forbidden as well.
    """
    parsed = ip_address(address.partition("%")[0])
    closed = FORBIDDEN if loopback else (*FORBIDDEN, *OWN)
    return any(form in network for form in forms(parsed) for network in closed)


def forms(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """The address, and the IPv4 addresses that an IPv6 one may stand for."""
    if isinstance(address, IPv4Address):
        return [address]
    number = int(address)
    found: list[IPv4Address | IPv6Address] = [address]
    if any(address in network for network in LAST_BITS) or (number >> 32) & 0xFFFFFFFF in ISATAP:
        found.append(IPv4Address(number & 0xFFFFFFFF))
    if address in SITE_NAT64:
        found += (embedded(number, length) for length in (48, 56, 64))
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found += address.teredo
    return found


def embedded(number: int, length: int) -> IPv4Address:
    """The IPv4 address behind a prefix of some length; bits 64 to 71 are left out (RFC 6052)."""
    without_gap = (number >> 64 << 64) | (number & ((1 << 56) - 1)) << 8
    return IPv4Address(without_gap >> (96 - length) & 0xFFFFFFFF)


AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
"""What `getaddrinfo` says of an address."""


class AddressGuard:
    """Makes sockets for allowed addresses, and remembers the one that it refused."""

    def __init__(self, *, loopback: bool = True) -> None:
        self.loopback = loopback
        """Whether addresses of the machine itself are allowed."""
        self.refused = ""

    def socket(self, address_info: AddressInfo) -> socket.socket:
        """A socket that is about to be connected to an address."""
        family, kind, protocol, _, address = address_info
        if is_forbidden(str(address[0]), loopback=self.loopback):
            self.refused = str(address[0])
            raise PermissionError(f"{self.refused} is not allowed")
        return socket.socket(family, kind, protocol)
