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
    """The message joins the unread messages, unless it is at or below the read position or was recalled."""

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
    """The read position moves up to up_to_seq, and never back. A mark ends, unless up_to_seq is below the read position. With by_app, it covers only messages delivered by then or within the next minute."""

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
    """The message leaves the unread messages and cannot join them again, even if the recall comes before the delivery, except by message.changed."""

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
    """The message is delivered as this event says: it counts again if it was recalled, unless it is at or below the read position, and it mentions exactly mentioned_user_ids. Nothing changes if a change or recall with the same or a greater revision came before."""

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
    """The conversation counts at least 1 until it is read up to the read position or further. With seqs, these messages count again until then instead, without those that were recalled. With from_seq, the messages of a room from there on do, without the user's own and those from before the user joined: rooms need from_seq, other conversations seqs. With both, from_seq applies to the members of the room and seqs to the others."""

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
    """The conversation is read up to up_to_seq, which may be below the read position, and seqs are unread, whatever was delivered, read or recalled before: seqs may be used again. Those at or below up_to_seq count again until the next read. Membership, level and a mark of the conversation stay. For a member of a room all messages above up_to_seq are unread, without the user's own, and seqs are ignored."""

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
    """The seen position moves up to up_to_seq, and never back: unread messages up to there are not unseen any more. A read moves it as well. With by_app, it covers only messages delivered by then."""

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
    """Changes what the conversation adds to the total, until the next level_set or, with until, until that time: then the conversation has the last level again that was set without until. The level default unsets it: then that of the longest category applies which covers the conversation, or else all."""

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
    """The conversation is read up to its last delivered message, or up to up_to_seq if that is greater, and leaves every list until a message with a greater seq is delivered."""

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
    """Sets the level of a category for all conversations that it covers and that have no level of their own, also for those to come. Of several categories that cover a conversation, the longest that has a level decides. The level default unsets it. With by_app, nothing changes if the user has 500 levels of categories already."""

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
    """Every conversation, or every conversation that a category covers, is read up to its last delivered message."""

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
    """Every conversation, or every conversation that a category covers, is seen up to its last delivered message."""

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
    """The users leave every conversation that a category covers, as with conversation.left, and every room there, as with room.left."""

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
    """The users become members of the room. Each has read it up to up_to_seq, or else up to its last message. Nothing changes for those who are members already."""

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
    """The users stop being members of the room, and what they had unread there is gone. Nothing changes for those who are not members."""

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
    """The message joins the unread messages of every member of the room but its sender, unless it is at or below the read position or was recalled. It counts for members only."""

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
    """The message leaves the unread messages of every member of the room and cannot join them again, even if the recall comes before the message, except by room.changed."""

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
    """The message is posted as this event says: it counts again if it was recalled, for the members who have not read so far, except its sender, and it mentions exactly mentioned_user_ids, or everyone. Nothing changes if a change or recall with the same or a greater revision came before."""

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
    """The last message of the room is seq, by default none: those above are forgotten, recalled or not, and their seqs may be used again. The read position of every member is at most seq, and at least up_to_seq. Levels and marks of the room stay. Of the last resets of a room, a repeat under the same source and id changes nothing."""

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
