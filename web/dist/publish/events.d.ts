/** A whole number. Above 2^53 it must be a bigint or its digits: numbers are rounded there. */
export type Seq = number | bigint | string;
/** What all events have. */
export interface Envelope {
    /** Unique within the source. Source and id identify the event: a second event with the same source and id counts only for users that the first does not name. */
    id: string;
    /** The publisher, by convention as a URI reference. */
    source?: string;
    /** When the event happened. It is only for information: no count depends on it. By default the time when the server accepted the event. */
    time?: string;
    /** W3C trace context, stored with the event. */
    traceparent?: string;
    /** W3C trace context, stored with the event. */
    tracestate?: string;
    /** Must be application/json, or end in +json. */
    datacontenttype?: string;
    /** Accepted and ignored. */
    dataschema?: string;
    /** Accepted and ignored. */
    subject?: string;
}
export interface Notification {
    /** The first line of the alert. */
    title?: string;
    /** The text of the alert. */
    body?: string;
    /** Data for the app, which the push carries. */
    data?: {
        readonly [name: string]: string;
    };
}
/** The message becomes unread, unless it is at or below the read position or was recalled. */
export interface MessageDelivered extends Envelope {
    type: "message.delivered";
    data: MessageDeliveredData;
}
export interface MessageDeliveredData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too. */
    seq: Seq;
    /** The users that the message mentions. They must be in user_ids too. */
    mentioned_user_ids?: readonly string[];
    /** The category of the conversation, by default chat. It is a path of one to eight parts, separated by slashes; each part has 1 to 64 characters. */
    category?: string;
    /** The id that the chat backend gave the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
    /** What a push shows on the devices of users who have not read the message, beside their new number. It has title and body, together at most 2048 bytes and not both empty, and optionally data, an object of strings of at most 1024 bytes together. */
    notification?: Notification;
}
/** The read position moves up to up_to_seq; it never moves back. A mark ends, unless up_to_seq is below the read position. With by_app, the read covers only messages delivered before it or within the next minute. */
export interface ConversationRead extends Envelope {
    type: "conversation.read";
    data: ConversationReadData;
}
export interface ConversationReadData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The seq of the last message that is read. */
    up_to_seq: Seq;
    /** The event comes from an app, which is not trusted: a read covers only messages delivered before it or within the next minute. */
    by_app?: boolean;
}
/** The message is not unread any more. Only message.changed can make it unread again: a delivery cannot, even if it comes after the recall. */
export interface MessageRecalled extends Envelope {
    type: "message.recalled";
    data: MessageRecalledData;
}
export interface MessageRecalledData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too. */
    seq: Seq;
    /** A number that is greater for each change of the message, such as the time of the change in milliseconds. The change or recall with the greatest revision applies, in whatever order they come. Changes and recalls without a revision apply in the order of the log. */
    revision?: Seq;
}
/** The message is delivered as this event says, even if it was recalled: it is unread, unless it is at or below the read position, and it mentions exactly mentioned_user_ids. Nothing changes if a change or recall of the message with the same or a greater revision came before. */
export interface MessageChanged extends Envelope {
    type: "message.changed";
    data: MessageChangedData;
}
export interface MessageChangedData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too. */
    seq: Seq;
    /** The users that the message mentions. They must be in user_ids too. */
    mentioned_user_ids?: readonly string[];
    /** A number that is greater for each change of the message, such as the time of the change in milliseconds. The change or recall with the greatest revision applies, in whatever order they come. Changes and recalls without a revision apply in the order of the log. */
    revision?: Seq;
    /** The category of the conversation, by default chat. It is a path of one to eight parts, separated by slashes; each part has 1 to 64 characters. */
    category?: string;
    /** The id that the chat backend gave the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
}
/** The conversation counts at least 1 until a read up to the read position or further. With seqs, these messages count again instead, until that read; recalled messages do not. With from_seq, this message and all later messages of a room count again, except the user's own messages and messages from before the user joined. To mark messages, give from_seq for a room, and seqs for another conversation. With both, from_seq applies to the members of the room, and seqs to the other users of the event. */
export interface ConversationMarkedUnread extends Envelope {
    type: "conversation.marked_unread";
    data: ConversationMarkedUnreadData;
}
export interface ConversationMarkedUnreadData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The seqs of messages that the user has read and that count as unread again. */
    seqs?: readonly Seq[];
    /** The seq of a message in a room: this message and all later messages count as unread again. */
    from_seq?: Seq;
}
/** Replaces what is read and unread, whatever was delivered, read or recalled before. The read position becomes up_to_seq, which may be lower than before, and exactly the messages in seqs are unread: later messages may use the seqs of earlier messages. Unread messages at or below up_to_seq count until the next read. Membership, level, category and a mark of the conversation do not change; the category changes with the next message that has a greater seq. For a member of a room, all messages above up_to_seq are unread, except the user's own messages, and seqs are ignored. */
export interface ConversationReset extends Envelope {
    type: "conversation.reset";
    data: ConversationResetData;
}
export interface ConversationResetData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The seq of the last message that is read, by default none. */
    up_to_seq?: Seq;
    /** The seqs of the messages that are unread, by default none. */
    seqs?: readonly Seq[];
}
/** The seen position moves up to up_to_seq; it never moves back. Unread messages up to the seen position are not unseen any more. A read moves the seen position too. With by_app, the event covers only messages delivered before it. */
export interface ConversationSeen extends Envelope {
    type: "conversation.seen";
    data: ConversationSeenData;
}
export interface ConversationSeenData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The seq of the last message that the user has seen. */
    up_to_seq: Seq;
    /** The event comes from an app, which is not trusted: a read covers only messages delivered before it or within the next minute. */
    by_app?: boolean;
}
/** Sets the level of the conversation: what it adds to the total. The level applies until the next level_set. With until, it also ends at that time; then the last level that was set without until applies again. The level default removes the level: then the level of the longest category applies that covers the conversation and has a level; if there is none, all. */
export interface ConversationLevelSet extends Envelope {
    type: "conversation.level_set";
    data: ConversationLevelSetData;
}
export interface ConversationLevelSetData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** What the conversation adds to the total. default: the level of its category applies; all: its unread messages; mentions: unread messages that mention the user; direct_mentions: unread messages that mention the user by name; none: nothing. */
    level: "default" | "all" | "mentions" | "direct_mentions" | "none";
    /** When the level ends, in RFC 3339. Within about ten seconds after that time, the last level that was set without until applies again. By default the level does not end. */
    until?: string;
}
/** The conversation is read up to its last delivered message, or up to up_to_seq if that is greater. It is removed from every list until a message with a greater seq is delivered. */
export interface ConversationLeft extends Envelope {
    type: "conversation.left";
    data: ConversationLeftData;
}
export interface ConversationLeftData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The seq of the last message whose delivery does not restore the conversation, by default the last delivered message. */
    up_to_seq?: Seq;
}
/** Sets the level of a category. The level applies to all conversations, present and future, that the category covers and that have no level of their own. If several categories that cover a conversation have levels, the level of the longest category applies. The level default removes the level. With by_app, a level of a further category changes nothing if 500 categories of the user have levels already. */
export interface CategoryLevelSet extends Envelope {
    type: "category.level_set";
    data: CategoryLevelSetData;
}
export interface CategoryLevelSetData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The category. It covers its own conversations, and the conversations of all categories whose name begins with it and a slash. */
    category: string;
    /** What the conversations that the category covers add to the total. */
    level: "default" | "all" | "mentions" | "direct_mentions" | "none";
    /** The event comes from an app, which is not trusted: a read covers only messages delivered before it or within the next minute. */
    by_app?: boolean;
}
/** All conversations, or all conversations that a category covers, are read up to their last delivered message. */
export interface UserReadAll extends Envelope {
    type: "user.read_all";
    data: UserReadAllData;
}
export interface UserReadAllData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The category: only conversations that it covers are concerned. By default all conversations. */
    category?: string;
}
/** All conversations, or all conversations that a category covers, are seen up to their last delivered message. */
export interface UserSeenAll extends Envelope {
    type: "user.seen_all";
    data: UserSeenAllData;
}
export interface UserSeenAllData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The category: only conversations that it covers are concerned. By default all conversations. */
    category?: string;
}
/** The users leave every conversation that a category covers, as by conversation.left, and every room that it covers, as by room.left. */
export interface UserLeftAll extends Envelope {
    type: "user.left_all";
    data: UserLeftAllData;
}
export interface UserLeftAllData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The category: the users leave all conversations that it covers. */
    category: string;
}
/** The users become members of the room. Their read position is up_to_seq, by default the last message of the room. Nothing changes for users who are members already. */
export interface RoomJoined extends Envelope {
    type: "room.joined";
    data: RoomJoinedData;
}
export interface RoomJoinedData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The seq of the last message that is read, by default the last message of the room. */
    up_to_seq?: Seq;
    /** What the conversation adds to the total. default: the level of its category applies; all: its unread messages; mentions: unread messages that mention the user; direct_mentions: unread messages that mention the user by name; none: nothing. */
    level?: "default" | "all" | "mentions" | "direct_mentions" | "none";
}
/** The users stop being members of the room, and the room has no unread messages for them any more. Nothing changes for users who are not members. */
export interface RoomLeft extends Envelope {
    type: "room.left";
    data: RoomLeftData;
}
export interface RoomLeftData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
}
/** The message becomes unread for every member of the room except its sender, unless it is at or below the member's read position or was recalled. It does not count for users who are not members. */
export interface RoomPosted extends Envelope {
    type: "room.posted";
    data: RoomPostedData;
}
export interface RoomPostedData {
    /** The conversation. */
    conversation_id: string;
    /** The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too. */
    seq: Seq;
    /** The users that the message mentions. Users who are not members of the room are ignored. */
    mentioned_user_ids?: readonly string[];
    /** The message mentions every member of the room. */
    mentions_all?: boolean;
    /** The category of the conversation, by default chat. It is a path of one to eight parts, separated by slashes; each part has 1 to 64 characters. */
    category?: string;
    /** The id that the chat backend gave the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
    /** What a push shows on the devices of users who have not read the message, beside their new number. It has title and body, together at most 2048 bytes and not both empty, and optionally data, an object of strings of at most 1024 bytes together. */
    notification?: Notification;
}
/** The message is not unread any more for any member of the room. Only room.changed can make it unread again: room.posted cannot, even if it comes after the recall. */
export interface RoomRecalled extends Envelope {
    type: "room.recalled";
    data: RoomRecalledData;
}
export interface RoomRecalledData {
    /** The conversation. */
    conversation_id: string;
    /** The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too. */
    seq: Seq;
    /** A number that is greater for each change of the message, such as the time of the change in milliseconds. The change or recall with the greatest revision applies, in whatever order they come. Changes and recalls without a revision apply in the order of the log. */
    revision?: Seq;
}
/** The message is posted as this event says, even if it was recalled: it is unread for the members whose read position is below it, except its sender, and it mentions exactly mentioned_user_ids, or all members. Nothing changes if a change or recall of the message with the same or a greater revision came before. */
export interface RoomChanged extends Envelope {
    type: "room.changed";
    data: RoomChangedData;
}
export interface RoomChangedData {
    /** The conversation. */
    conversation_id: string;
    /** The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too. */
    seq: Seq;
    /** The users that the message mentions. Users who are not members of the room are ignored. */
    mentioned_user_ids?: readonly string[];
    /** The message mentions every member of the room. */
    mentions_all?: boolean;
    /** A number that is greater for each change of the message, such as the time of the change in milliseconds. The change or recall with the greatest revision applies, in whatever order they come. Changes and recalls without a revision apply in the order of the log. */
    revision?: Seq;
    /** The category of the conversation, by default chat. It is a path of one to eight parts, separated by slashes; each part has 1 to 64 characters. */
    category?: string;
    /** The id that the chat backend gave the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
}
/** The last message of the room becomes seq, by default none. Messages above seq, recalled or not, are deleted, and later messages may use their seqs. The read position of every member becomes at most seq and at least up_to_seq. If up_to_seq is greater than seq, later messages up to it are read. Levels and marks do not change, except that marked messages up to up_to_seq are read. The category changes with the next message that has a greater seq. If one of the last resets of a room is repeated with the same source and id, nothing changes. */
export interface RoomReset extends Envelope {
    type: "room.reset";
    data: RoomResetData;
}
export interface RoomResetData {
    /** The conversation. */
    conversation_id: string;
    /** The seq of the last message of the room, by default none. */
    seq?: Seq;
    /** The least read position of every member. */
    up_to_seq?: Seq;
}
/** An event, by its type. */
export type BadgedEvent = MessageDelivered | ConversationRead | MessageRecalled | MessageChanged | ConversationMarkedUnread | ConversationReset | ConversationSeen | ConversationLevelSet | ConversationLeft | CategoryLevelSet | UserReadAll | UserSeenAll | UserLeftAll | RoomJoined | RoomLeft | RoomPosted | RoomRecalled | RoomChanged | RoomReset;
