/** A whole number. Above 2^53 it must be a bigint or its digits: numbers are rounded there. */
export type Seq = number | bigint | string;
/** What all events have. */
export interface Envelope {
    /** Unique within the source. The two identify the event: a repeated event changes nothing. */
    id: string;
    /** The publisher, by convention as a URI reference. */
    source?: string;
    /** When it happened, for information: no count depends on it. By default the time at which the event was accepted. */
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
    /** The first line. */
    title?: string;
    /** The text. */
    body?: string;
    /** For the app. */
    data?: {
        readonly [name: string]: string;
    };
}
/** The message joins the unread messages, unless it is at or below the read position or was recalled. */
export interface MessageDelivered extends Envelope {
    type: "message.delivered";
    data: MessageDeliveredData;
}
export interface MessageDeliveredData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The position of the message in its conversation. */
    seq: Seq;
    /** The users that the message mentions, of user_ids. */
    mentioned_user_ids?: readonly string[];
    /** The category of the conversation, by default chat: a path of one to eight parts with slashes in between, each of 1 to 64 characters. */
    category?: string;
    /** The chat backend's own id of the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
    /** What is pushed to the devices of users who have not read the message, with their new number: title and body, at most 2048 bytes together and not both empty, and optionally data, an object of strings of at most 1024 bytes. */
    notification?: Notification;
}
/** The read position moves up to up_to_seq, and never back. A mark ends, unless up_to_seq is below the read position. With by_app, it covers only messages delivered by then or within the next minute. */
export interface ConversationRead extends Envelope {
    type: "conversation.read";
    data: ConversationReadData;
}
export interface ConversationReadData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The last message that is read. */
    up_to_seq: Seq;
    /** The event comes from an app, which is not trusted: a read covers only messages delivered by then or within the next minute. */
    by_app?: boolean;
}
/** The message leaves the unread messages and cannot join them again, even if the recall comes before the delivery, except by message.changed. */
export interface MessageRecalled extends Envelope {
    type: "message.recalled";
    data: MessageRecalledData;
}
export interface MessageRecalledData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The position of the message in its conversation. */
    seq: Seq;
    /** The number of the change of the message, greater than those of earlier changes, such as its time in milliseconds. Of changes and recalls with a revision the greatest applies, in whatever order they come; without one, they apply in the order of the log. */
    revision?: Seq;
}
/** The message is delivered as this event says: it counts again if it was recalled, unless it is at or below the read position, and it mentions exactly mentioned_user_ids. Nothing changes if a change or recall with the same or a greater revision came before. */
export interface MessageChanged extends Envelope {
    type: "message.changed";
    data: MessageChangedData;
}
export interface MessageChangedData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The position of the message in its conversation. */
    seq: Seq;
    /** The users that the message mentions, of user_ids. */
    mentioned_user_ids?: readonly string[];
    /** The number of the change of the message, greater than those of earlier changes, such as its time in milliseconds. Of changes and recalls with a revision the greatest applies, in whatever order they come; without one, they apply in the order of the log. */
    revision?: Seq;
    /** The category of the conversation, by default chat: a path of one to eight parts with slashes in between, each of 1 to 64 characters. */
    category?: string;
    /** The chat backend's own id of the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
}
/** The conversation counts at least 1 until it is read up to the read position or further. With seqs, these messages count again until then instead, without those that were recalled. With from_seq, the messages of a room from there on do, without the user's own and those from before the user joined: rooms need from_seq, other conversations seqs. With both, from_seq applies to the members of the room and seqs to the others. */
export interface ConversationMarkedUnread extends Envelope {
    type: "conversation.marked_unread";
    data: ConversationMarkedUnreadData;
}
export interface ConversationMarkedUnreadData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** Messages that the user has read and that count again. */
    seqs?: readonly Seq[];
    /** The first message of a room that counts again. */
    from_seq?: Seq;
}
/** The conversation is read up to up_to_seq, which may be below the read position, and seqs are unread, whatever was delivered, read or recalled before: seqs may be used again. Those at or below up_to_seq count again until the next read. Membership, level and a mark of the conversation stay. For a member of a room all messages above up_to_seq are unread, without the user's own, and seqs are ignored. */
export interface ConversationReset extends Envelope {
    type: "conversation.reset";
    data: ConversationResetData;
}
export interface ConversationResetData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The last message that is read, by default none. */
    up_to_seq?: Seq;
    /** The messages that are unread, by default none. */
    seqs?: readonly Seq[];
}
/** The seen position moves up to up_to_seq, and never back: unread messages up to there are not unseen any more. A read moves it as well. With by_app, it covers only messages delivered by then. */
export interface ConversationSeen extends Envelope {
    type: "conversation.seen";
    data: ConversationSeenData;
}
export interface ConversationSeenData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The last message that the user has seen. */
    up_to_seq: Seq;
    /** The event comes from an app, which is not trusted: a read covers only messages delivered by then or within the next minute. */
    by_app?: boolean;
}
/** Changes what the conversation adds to the total, until the next level_set or, with until, until that time: then the conversation has the last level again that was set without until. The level default unsets it: then that of the longest category applies which covers the conversation, or else all. */
export interface ConversationLevelSet extends Envelope {
    type: "conversation.level_set";
    data: ConversationLevelSetData;
}
export interface ConversationLevelSetData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** What the conversation adds to the total: what its category says, its unread messages, those that mention the user, those that mention the user by name, or nothing. */
    level: "default" | "all" | "mentions" | "direct_mentions" | "none";
    /** When the level ends, in RFC 3339: within a minute of that time the conversation has the level before again. By default it does not end. */
    until?: string;
}
/** The conversation is read up to its last delivered message, or up to up_to_seq if that is greater, and leaves every list until a message with a greater seq is delivered. */
export interface ConversationLeft extends Envelope {
    type: "conversation.left";
    data: ConversationLeftData;
}
export interface ConversationLeftData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The last message that does not bring the conversation back, by default the last delivered one. */
    up_to_seq?: Seq;
}
/** Sets the level of a category for all conversations that it covers and that have no level of their own, also for those to come. Of several categories that cover a conversation, the longest that has a level decides. The level default unsets it. With by_app, nothing changes if the user has 500 levels of categories already. */
export interface CategoryLevelSet extends Envelope {
    type: "category.level_set";
    data: CategoryLevelSetData;
}
export interface CategoryLevelSetData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The category, which covers itself and all that begin with it and a slash. */
    category: string;
    /** What the conversations add to the total. */
    level: "default" | "all" | "mentions" | "direct_mentions" | "none";
    /** The event comes from an app, which is not trusted: a read covers only messages delivered by then or within the next minute. */
    by_app?: boolean;
}
/** Every conversation, or every conversation that a category covers, is read up to its last delivered message. */
export interface UserReadAll extends Envelope {
    type: "user.read_all";
    data: UserReadAllData;
}
export interface UserReadAllData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** Only the conversations of this category and of those below it, by default all. */
    category?: string;
}
/** Every conversation, or every conversation that a category covers, is seen up to its last delivered message. */
export interface UserSeenAll extends Envelope {
    type: "user.seen_all";
    data: UserSeenAllData;
}
export interface UserSeenAllData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** Only the conversations of this category and of those below it, by default all. */
    category?: string;
}
/** The users leave every conversation that a category covers, as with conversation.left, and every room there, as with room.left. */
export interface UserLeftAll extends Envelope {
    type: "user.left_all";
    data: UserLeftAllData;
}
export interface UserLeftAllData {
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The category that is left with all below it. */
    category: string;
}
/** The users become members of the room. Each has read it up to up_to_seq, or else up to its last message. Nothing changes for those who are members already. */
export interface RoomJoined extends Envelope {
    type: "room.joined";
    data: RoomJoinedData;
}
export interface RoomJoinedData {
    /** The conversation. */
    conversation_id: string;
    /** The users that the event affects. */
    user_ids: readonly string[];
    /** The last message that is read, by default the last one of the room. */
    up_to_seq?: Seq;
    /** What the conversation adds to the total: what its category says, its unread messages, those that mention the user, those that mention the user by name, or nothing. */
    level?: "default" | "all" | "mentions" | "direct_mentions" | "none";
}
/** The users stop being members of the room, and what they had unread there is gone. Nothing changes for those who are not members. */
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
/** The message joins the unread messages of every member of the room but its sender, unless it is at or below the read position or was recalled. It counts for members only. */
export interface RoomPosted extends Envelope {
    type: "room.posted";
    data: RoomPostedData;
}
export interface RoomPostedData {
    /** The conversation. */
    conversation_id: string;
    /** The position of the message in its conversation. */
    seq: Seq;
    /** The users that the message mentions. Those who are not members are ignored. */
    mentioned_user_ids?: readonly string[];
    /** The message mentions every member of the room. */
    mentions_all?: boolean;
    /** The category of the conversation, by default chat: a path of one to eight parts with slashes in between, each of 1 to 64 characters. */
    category?: string;
    /** The chat backend's own id of the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
    /** What is pushed to the devices of users who have not read the message, with their new number: title and body, at most 2048 bytes together and not both empty, and optionally data, an object of strings of at most 1024 bytes. */
    notification?: Notification;
}
/** The message leaves the unread messages of every member of the room and cannot join them again, even if the recall comes before the message, except by room.changed. */
export interface RoomRecalled extends Envelope {
    type: "room.recalled";
    data: RoomRecalledData;
}
export interface RoomRecalledData {
    /** The conversation. */
    conversation_id: string;
    /** The position of the message in its conversation. */
    seq: Seq;
    /** The number of the change of the message, greater than those of earlier changes, such as its time in milliseconds. Of changes and recalls with a revision the greatest applies, in whatever order they come; without one, they apply in the order of the log. */
    revision?: Seq;
}
/** The message is posted as this event says: it counts again if it was recalled, for the members who have not read so far, except its sender, and it mentions exactly mentioned_user_ids, or everyone. Nothing changes if a change or recall with the same or a greater revision came before. */
export interface RoomChanged extends Envelope {
    type: "room.changed";
    data: RoomChangedData;
}
export interface RoomChangedData {
    /** The conversation. */
    conversation_id: string;
    /** The position of the message in its conversation. */
    seq: Seq;
    /** The users that the message mentions. Those who are not members are ignored. */
    mentioned_user_ids?: readonly string[];
    /** The message mentions every member of the room. */
    mentions_all?: boolean;
    /** The number of the change of the message, greater than those of earlier changes, such as its time in milliseconds. Of changes and recalls with a revision the greatest applies, in whatever order they come; without one, they apply in the order of the log. */
    revision?: Seq;
    /** The category of the conversation, by default chat: a path of one to eight parts with slashes in between, each of 1 to 64 characters. */
    category?: string;
    /** The chat backend's own id of the message, for information. */
    message_id?: string;
    /** The sender of the message. It does not count for the sender. */
    sender_id?: string;
}
/** The last message of the room is seq, by default none: those above are forgotten, recalled or not, and their seqs may be used again. The read position of every member is at most seq, and at least up_to_seq. Levels and marks of the room stay. Of the last resets of a room, a repeat under the same source and id changes nothing. */
export interface RoomReset extends Envelope {
    type: "room.reset";
    data: RoomResetData;
}
export interface RoomResetData {
    /** The conversation. */
    conversation_id: string;
    /** The last message of the room, by default none. */
    seq?: Seq;
    /** The message up to which every member has read at least. */
    up_to_seq?: Seq;
}
/** An event, by its type. */
export type BadgedEvent = MessageDelivered | ConversationRead | MessageRecalled | MessageChanged | ConversationMarkedUnread | ConversationReset | ConversationSeen | ConversationLevelSet | ConversationLeft | CategoryLevelSet | UserReadAll | UserSeenAll | UserLeftAll | RoomJoined | RoomLeft | RoomPosted | RoomRecalled | RoomChanged | RoomReset;
