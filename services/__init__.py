"""The engine: four services over one core, and their command line."""

import os

from services.core.runtime.grpc_polling import poll_ourselves

poll_ourselves(os.environ)  # before anything here imports gRPC
