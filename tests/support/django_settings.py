"""The settings of a Django project, for the page about web frameworks. A test puts its URLs in place."""

SECRET_KEY = "of-a-test"
ALLOWED_HOSTS = ["127.0.0.1"]
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024**2
ROOT_URLCONF = ""
