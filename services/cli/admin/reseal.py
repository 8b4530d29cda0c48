"""`runr admin reseal`: the signing keys at rest under the encryption key of now, after it was changed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from services.cli.admin.desk import Desk, tell
from services.cli.failure import Failure
from services.cli.table import counted
from services.core.engine.signing_keys import reseal
from services.core.runtime.config import ConfigError, load
from services.core.runtime.sealing import SealBroken, Sealer
from services.core.runtime.service import EXIT_USAGE
from services.core.runtime.settings import EncryptionSettings
from services.core.store.access import write_audit
from services.core.store.audit import INSTALLATION


async def run(place: Desk, given: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Seal what former keys have sealed with RUNR_ENCRYPTION_KEY; all of it or, when a key is missing, nothing."""
    try:
        settings = load(EncryptionSettings, environ)
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    try:
        changed, total = await reseal(place.connection, Sealer(settings.key, retired=settings.former))
    except SealBroken as error:
        raise Failure(f"{error}: add the key it was sealed with to RUNR_FORMER_ENCRYPTION_KEYS") from None
    if changed:
        subject = counted(changed, "project")
        await write_audit(
            place.connection, tenant=INSTALLATION, actor=place.actor, action="encryption_key.change", subject=subject
        )
    told = f"{changed} of {counted(total, 'project')} had keys of another encryption key, and no longer do"
    tell(given, {"resealed": changed, "projects": total}, told)
