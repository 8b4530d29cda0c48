"""A Python client of the RunR services over gRPC: the generated code is below `runr.workflows.v1`, and here is what
every caller of it needs: channels with keepalive and TLS, the token and the tenant of each call, deadlines, and errors
with their details.

    async with aio_channel("ingest:7101", token=token, tls=Tls.of(ca="ca.pem")) as channel:
        runs = run_service_pb2_grpc.RunServiceStub(channel)
        try:
            started = await runs.StartRun(request, metadata=named("order-17"))
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error)
"""

from runr_client.channel import Tls, aio_channel, channel
from runr_client.credentials import Credentials
from runr_client.fault import Fault, FieldFault, fault_of
from runr_client.metadata import named, traced

__all__ = ["Credentials", "Fault", "FieldFault", "Tls", "aio_channel", "channel", "fault_of", "named", "traced"]
