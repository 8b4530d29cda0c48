"""What can go wrong between a request and its answer."""

from __future__ import annotations


class HttpError(Exception):
    """No answer. The message is a sentence for the log of a run; it may hold bytes of strangers."""


class BadAnswer(HttpError):
    """What came back is not an HTTP/1.1 answer, or not the answer to this request."""


class AnswerTooBig(HttpError):
    """The answer has, or announces, more bytes than are wanted."""


class ConnectionBroken(HttpError):
    """There was no connection, or it ended before the answer did."""


class OutOfTime(HttpError):
    """The answer was not complete when the time was up."""


class AddressRefused(OSError):
    """An address that must not be connected to: raised by the resolver and the opener of sockets given to a client.

    An OSError, because that is what a connector takes for "not there" while there are other addresses to try.
    """
