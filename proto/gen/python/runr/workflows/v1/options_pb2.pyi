from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class Permission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERMISSION_UNSPECIFIED: _ClassVar[Permission]
    PERMISSION_PUBLIC: _ClassVar[Permission]
    PERMISSION_AUTHENTICATED: _ClassVar[Permission]
    PERMISSION_PER_ITEM: _ClassVar[Permission]
    PERMISSION_WORKFLOWS_VIEW: _ClassVar[Permission]
    PERMISSION_WORKFLOWS_MANAGE: _ClassVar[Permission]
    PERMISSION_WORKFLOWS_RUN: _ClassVar[Permission]
    PERMISSION_EVENTS_SEND: _ClassVar[Permission]
    PERMISSION_SIGNED: _ClassVar[Permission]
PERMISSION_UNSPECIFIED: Permission
PERMISSION_PUBLIC: Permission
PERMISSION_AUTHENTICATED: Permission
PERMISSION_PER_ITEM: Permission
PERMISSION_WORKFLOWS_VIEW: Permission
PERMISSION_WORKFLOWS_MANAGE: Permission
PERMISSION_WORKFLOWS_RUN: Permission
PERMISSION_EVENTS_SEND: Permission
PERMISSION_SIGNED: Permission
PERMISSION_FIELD_NUMBER: _ClassVar[int]
permission: _descriptor.FieldDescriptor
