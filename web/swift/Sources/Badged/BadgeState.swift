import Foundation

/// A conversation of the user.
public struct Conversation: Decodable, Equatable, Sendable {
    public let id: String
    /// Unread messages, whatever the level.
    public let unread: Int64
    /// Unread messages that mention the user.
    public let mentions: Int64
    /// The first unread message, or 0.
    public let firstUnreadSeq: Int64
    public let readSeq: Int64
    public let lastSeq: Int64
    /// all, mentions, direct_mentions or none: what counts.
    public let level: String
    /// When the level ends, in RFC 3339; nil if it does not.
    public let levelUntil: String?
    public let category: String
    public let markedUnread: Bool
    let left: Bool?

    enum CodingKeys: String, CodingKey {
        case id = "conversation_id"
        case unread, mentions, level, category, left
        case firstUnreadSeq = "first_unread_seq"
        case readSeq = "read_seq"
        case lastSeq = "last_seq"
        case markedUnread = "marked_unread"
        case levelUntil = "level_until"
    }
}

/// The badge of the user and the conversations that the server has listed.
public struct BadgeState: Equatable, Sendable {
    public let epoch: String
    public let version: Int64
    /// The number for the badge.
    public let total: Int64
    public let mentions: Int64
    /// How many conversations add something to the total; 0 with a server that does not say.
    public let unreadConversations: Int64
    /// By id, without those that the user has left.
    public let conversations: [String: Conversation]

    /// Applies a snapshot always, and changes if they are newer. Returns held if nothing applies.
    static func after(_ held: BadgeState?, _ frame: StateFrame) throws -> BadgeState {
        var conversations: [String: Conversation] = [:]
        if frame.t == "changes" {
            guard let held = held, held.epoch == frame.epoch else { throw ProtocolError("changes of another epoch") }
            if frame.version <= held.version { return held }
            conversations = held.conversations
        }
        for one in frame.conversations {
            conversations[one.id] = one.left == true ? nil : one
        }
        return BadgeState(
            epoch: frame.epoch, version: frame.version, total: frame.total, mentions: frame.mentions,
            unreadConversations: frame.unreadConversations ?? 0, conversations: conversations)
    }
}
