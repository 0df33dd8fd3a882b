"""A certificate authority and a server certificate for trying the broker out; production brings its own."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from ops.command_fault import CommandFault
from ops.durable_file import make_private_directory, private_mode, replace_durably

certificate_days: Final = 825
"""Days for which the certificates are valid: the most that clients of all kinds accept."""
before_minutes: Final = 10
"""Minutes before their making from which they are valid: clocks differ."""


class Certificates(Struct, frozen=True, kw_only=True):
    """Paths as PEM: whom to trust, and what the server shows."""

    authority: Path
    server: Path
    server_key: Path


def own_certificates(directory: Path, hosts: Sequence[str]) -> Certificates:
    """The certificates in `directory`, made where they are missing or do not name all `hosts`.

    The authority's own key is kept, so that clients which trust it go on to do so. Raises CommandFault, OSError.
    """
    make_private_directory(directory)
    found = Certificates(
        authority=directory / "ca.pem", server=directory / "server.pem", server_key=directory / "server-key.pem"
    )
    authority_key_file = directory / "ca-key.pem"
    if not (found.authority.exists() and authority_key_file.exists()):
        _make_authority(found.authority, authority_key_file)
    if not found.server_key.exists() or set(_names(found.server)) != set(hosts):
        _make_server(found, authority_key_file, hosts)
    return found


def _make_authority(file: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Weavehold broker CA")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _dated(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    replace_durably(key_file, _pem(key), mode=private_mode)
    replace_durably(
        file, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), mode=private_mode
    )


def _make_server(paths: Certificates, authority_key_file: Path, hosts: Sequence[str]) -> None:
    authority = _read(paths.authority)
    issuer = serialization.load_pem_private_key(authority_key_file.read_bytes(), None)
    if not isinstance(issuer, ec.EllipticCurvePrivateKey):
        raise CommandFault(f"{authority_key_file} is no key of ours; move it away with {paths.authority}")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Weavehold broker")])
    builder = (
        _dated(name, authority.subject, key)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            # Servers of a cluster show it to one another too.
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
    )
    replace_durably(paths.server_key, _pem(key), mode=private_mode)
    replace_durably(
        paths.server, builder.sign(issuer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), mode=private_mode
    )


def _dated(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=before_minutes))
        .not_valid_after(now + timedelta(days=certificate_days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _names(file: Path) -> list[str]:
    """The hosts that a certificate names; none where there is no certificate."""
    if not file.exists():
        return []
    extension = _read(file).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


def _read(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except ValueError as fault:
        raise CommandFault(f"{file} is no certificate; move it away and run the command again") from fault


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
