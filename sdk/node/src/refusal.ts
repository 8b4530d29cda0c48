/**
 * Why a request is answered with something else than 200 (protocol section 2).
 *
 *     RequestRefused
 *     ├── BadRequest          400
 *     ├── SignatureRejected   401
 *     ├── BodyTooLarge        413
 *     └── NoSigningKey        500
 */

/** A request that is not executed. The message is sent to the caller: it names no key and shows no stack. */
export class RequestRefused extends Error {
  readonly status: number = 400;
}

/** Not a v1 envelope, a request type that is not known, or a workflow that is not served here. */
export class BadRequest extends RequestRefused {}

/** The signature is missing, malformed, stale, or by no key that is held. */
export class SignatureRejected extends RequestRefused {
  override readonly status = 401;
}

/** The body is over the limit of 64 MiB. */
export class BodyTooLarge extends RequestRefused {
  override readonly status = 413;
}

/** No signing key is configured, so nothing can be verified. */
export class NoSigningKey extends RequestRefused {
  override readonly status = 500;
}
