"""The events. Generated from docs/reference/openapi.json by `npm run build`."""

from typing import Dict, List, Literal, TypedDict, Union


class Notification(TypedDict, total=False):
    title: str
    body: str
    data: Dict[str, str]


class _MessageDeliveredData(TypedDict):
    conversation_id: str
    user_ids: List[str]
    seq: Union[int, str]


class MessageDeliveredData(_MessageDeliveredData, total=False):
    mentioned_user_ids: List[str]
    category: str
    message_id: str
    sender_id: str
    notification: Notification


class _MessageDelivered(TypedDict):
    id: str
    type: Literal["message.delivered"]
    data: MessageDeliveredData


class MessageDelivered(_MessageDelivered, total=False):
    """The message becomes unread, unless it is at or below the read position or was recalled."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _ConversationReadData(TypedDict):
    conversation_id: str
    user_ids: List[str]
    up_to_seq: Union[int, str]


class ConversationReadData(_ConversationReadData, total=False):
    by_app: bool


class _ConversationRead(TypedDict):
    id: str
    type: Literal["conversation.read"]
    data: ConversationReadData


class ConversationRead(_ConversationRead, total=False):
    """The read position moves up to up_to_seq; it never moves back. A mark ends, unless up_to_seq is below the read position. With by_app, the read covers only messages delivered before it or within the next minute."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _MessageRecalledData(TypedDict):
    conversation_id: str
    user_ids: List[str]
    seq: Union[int, str]


class MessageRecalledData(_MessageRecalledData, total=False):
    revision: Union[int, str]


class _MessageRecalled(TypedDict):
    id: str
    type: Literal["message.recalled"]
    data: MessageRecalledData


class MessageRecalled(_MessageRecalled, total=False):
    """The message is not unread any more. Only message.changed can make it unread again: a delivery cannot, even if it comes after the recall."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _MessageChangedData(TypedDict):
    conversation_id: str
    user_ids: List[str]
    seq: Union[int, str]


class MessageChangedData(_MessageChangedData, total=False):
    mentioned_user_ids: List[str]
    revision: Union[int, str]
    category: str
    message_id: str
    sender_id: str


class _MessageChanged(TypedDict):
    id: str
    type: Literal["message.changed"]
    data: MessageChangedData


class MessageChanged(_MessageChanged, total=False):
    """The message is delivered as this event says, even if it was recalled: it is unread, unless it is at or below the read position, and it mentions exactly mentioned_user_ids. Nothing changes if a change or recall of the message with the same or a greater revision came before."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _ConversationMarkedUnreadData(TypedDict):
    conversation_id: str
    user_ids: List[str]


class ConversationMarkedUnreadData(_ConversationMarkedUnreadData, total=False):
    seqs: List[Union[int, str]]
    from_seq: Union[int, str]


class _ConversationMarkedUnread(TypedDict):
    id: str
    type: Literal["conversation.marked_unread"]
    data: ConversationMarkedUnreadData


class ConversationMarkedUnread(_ConversationMarkedUnread, total=False):
    """The conversation counts at least 1 until a read up to the read position or further. With seqs, these messages count again instead, until that read; recalled messages do not. With from_seq, this message and all later messages of a room count again, except the user's own messages and messages from before the user joined. To mark messages, give from_seq for a room, and seqs for another conversation. With both, from_seq applies to the members of the room, and seqs to the other users of the event."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _ConversationResetData(TypedDict):
    conversation_id: str
    user_ids: List[str]


class ConversationResetData(_ConversationResetData, total=False):
    up_to_seq: Union[int, str]
    seqs: List[Union[int, str]]


class _ConversationReset(TypedDict):
    id: str
    type: Literal["conversation.reset"]
    data: ConversationResetData


class ConversationReset(_ConversationReset, total=False):
    """Replaces what is read and unread, whatever was delivered, read or recalled before. The read position becomes up_to_seq, which may be lower than before, and exactly the messages in seqs are unread: later messages may use the seqs of earlier messages. Unread messages at or below up_to_seq count until the next read. Membership, level, category and a mark of the conversation do not change; the category changes with the next message that has a greater seq. For a member of a room, all messages above up_to_seq are unread, except the user's own messages, and seqs are ignored."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _ConversationSeenData(TypedDict):
    conversation_id: str
    user_ids: List[str]
    up_to_seq: Union[int, str]


class ConversationSeenData(_ConversationSeenData, total=False):
    by_app: bool


class _ConversationSeen(TypedDict):
    id: str
    type: Literal["conversation.seen"]
    data: ConversationSeenData


class ConversationSeen(_ConversationSeen, total=False):
    """The seen position moves up to up_to_seq; it never moves back. Unread messages up to the seen position are not unseen any more. A read moves the seen position too. With by_app, the event covers only messages delivered before it."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _ConversationLevelSetData(TypedDict):
    conversation_id: str
    user_ids: List[str]
    level: Literal["default", "all", "mentions", "direct_mentions", "none"]


class ConversationLevelSetData(_ConversationLevelSetData, total=False):
    until: str


class _ConversationLevelSet(TypedDict):
    id: str
    type: Literal["conversation.level_set"]
    data: ConversationLevelSetData


class ConversationLevelSet(_ConversationLevelSet, total=False):
    """Sets the level of the conversation: what it adds to the total. The level applies until the next level_set. With until, it also ends at that time; then the last level that was set without until applies again. The level default removes the level: then the level of the longest category applies that covers the conversation and has a level; if there is none, all."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _ConversationLeftData(TypedDict):
    conversation_id: str
    user_ids: List[str]


class ConversationLeftData(_ConversationLeftData, total=False):
    up_to_seq: Union[int, str]


class _ConversationLeft(TypedDict):
    id: str
    type: Literal["conversation.left"]
    data: ConversationLeftData


class ConversationLeft(_ConversationLeft, total=False):
    """The conversation is read up to its last delivered message, or up to up_to_seq if that is greater. It is removed from every list until a message with a greater seq is delivered."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _CategoryLevelSetData(TypedDict):
    user_ids: List[str]
    category: str
    level: Literal["default", "all", "mentions", "direct_mentions", "none"]


class CategoryLevelSetData(_CategoryLevelSetData, total=False):
    by_app: bool


class _CategoryLevelSet(TypedDict):
    id: str
    type: Literal["category.level_set"]
    data: CategoryLevelSetData


class CategoryLevelSet(_CategoryLevelSet, total=False):
    """Sets the level of a category. The level applies to all conversations, present and future, that the category covers and that have no level of their own. If several categories that cover a conversation have levels, the level of the longest category applies. The level default removes the level. With by_app, a level of a further category changes nothing if 500 categories of the user have levels already."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _UserReadAllData(TypedDict):
    user_ids: List[str]


class UserReadAllData(_UserReadAllData, total=False):
    category: str


class _UserReadAll(TypedDict):
    id: str
    type: Literal["user.read_all"]
    data: UserReadAllData


class UserReadAll(_UserReadAll, total=False):
    """All conversations, or all conversations that a category covers, are read up to their last delivered message."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _UserSeenAllData(TypedDict):
    user_ids: List[str]


class UserSeenAllData(_UserSeenAllData, total=False):
    category: str


class _UserSeenAll(TypedDict):
    id: str
    type: Literal["user.seen_all"]
    data: UserSeenAllData


class UserSeenAll(_UserSeenAll, total=False):
    """All conversations, or all conversations that a category covers, are seen up to their last delivered message."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class UserLeftAllData(TypedDict):
    user_ids: List[str]
    category: str


class _UserLeftAll(TypedDict):
    id: str
    type: Literal["user.left_all"]
    data: UserLeftAllData


class UserLeftAll(_UserLeftAll, total=False):
    """The users leave every conversation that a category covers, as by conversation.left, and every room that it covers, as by room.left."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _RoomJoinedData(TypedDict):
    conversation_id: str
    user_ids: List[str]


class RoomJoinedData(_RoomJoinedData, total=False):
    up_to_seq: Union[int, str]
    level: Literal["default", "all", "mentions", "direct_mentions", "none"]


class _RoomJoined(TypedDict):
    id: str
    type: Literal["room.joined"]
    data: RoomJoinedData


class RoomJoined(_RoomJoined, total=False):
    """The users become members of the room. Their read position is up_to_seq, by default the last message of the room. Nothing changes for users who are members already."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class RoomLeftData(TypedDict):
    conversation_id: str
    user_ids: List[str]


class _RoomLeft(TypedDict):
    id: str
    type: Literal["room.left"]
    data: RoomLeftData


class RoomLeft(_RoomLeft, total=False):
    """The users stop being members of the room, and the room has no unread messages for them any more. Nothing changes for users who are not members."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _RoomPostedData(TypedDict):
    conversation_id: str
    seq: Union[int, str]


class RoomPostedData(_RoomPostedData, total=False):
    mentioned_user_ids: List[str]
    mentions_all: bool
    category: str
    message_id: str
    sender_id: str
    notification: Notification


class _RoomPosted(TypedDict):
    id: str
    type: Literal["room.posted"]
    data: RoomPostedData


class RoomPosted(_RoomPosted, total=False):
    """The message becomes unread for every member of the room except its sender, unless it is at or below the member's read position or was recalled. It does not count for users who are not members."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _RoomRecalledData(TypedDict):
    conversation_id: str
    seq: Union[int, str]


class RoomRecalledData(_RoomRecalledData, total=False):
    revision: Union[int, str]


class _RoomRecalled(TypedDict):
    id: str
    type: Literal["room.recalled"]
    data: RoomRecalledData


class RoomRecalled(_RoomRecalled, total=False):
    """The message is not unread any more for any member of the room. Only room.changed can make it unread again: room.posted cannot, even if it comes after the recall."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _RoomChangedData(TypedDict):
    conversation_id: str
    seq: Union[int, str]


class RoomChangedData(_RoomChangedData, total=False):
    mentioned_user_ids: List[str]
    mentions_all: bool
    revision: Union[int, str]
    category: str
    message_id: str
    sender_id: str


class _RoomChanged(TypedDict):
    id: str
    type: Literal["room.changed"]
    data: RoomChangedData


class RoomChanged(_RoomChanged, total=False):
    """The message is posted as this event says, even if it was recalled: it is unread for the members whose read position is below it, except its sender, and it mentions exactly mentioned_user_ids, or all members. Nothing changes if a change or recall of the message with the same or a greater revision came before."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


class _RoomResetData(TypedDict):
    conversation_id: str


class RoomResetData(_RoomResetData, total=False):
    seq: Union[int, str]
    up_to_seq: Union[int, str]


class _RoomReset(TypedDict):
    id: str
    type: Literal["room.reset"]
    data: RoomResetData


class RoomReset(_RoomReset, total=False):
    """The last message of the room becomes seq, by default none. Messages above seq, recalled or not, are deleted, and later messages may use their seqs. The read position of every member becomes at most seq and at least up_to_seq. If up_to_seq is greater than seq, later messages up to it are read. Levels and marks do not change, except that marked messages up to up_to_seq are read. The category changes with the next message that has a greater seq. If one of the last resets of a room is repeated with the same source and id, nothing changes."""

    source: str
    time: str
    traceparent: str
    tracestate: str
    datacontenttype: str
    dataschema: str
    subject: str


Event = Union[
    MessageDelivered,
    ConversationRead,
    MessageRecalled,
    MessageChanged,
    ConversationMarkedUnread,
    ConversationReset,
    ConversationSeen,
    ConversationLevelSet,
    ConversationLeft,
    CategoryLevelSet,
    UserReadAll,
    UserSeenAll,
    UserLeftAll,
    RoomJoined,
    RoomLeft,
    RoomPosted,
    RoomRecalled,
    RoomChanged,
    RoomReset,
]
