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
    /// The seen position if it is above readSeq; otherwise nil.
    public let seenSeq: Int64?
    /// How many of the unread messages the user has seen; nil for none.
    public let seen: Int64?
    /// How many of the mentions the user has seen; nil for none.
    public let seenMentions: Int64?
    /// The level of the conversation itself: default, all, mentions, direct_mentions or none.
    /// BadgeState.level(of:) is what counts.
    public let level: String
    /// When the level ends, in RFC 3339; nil if it does not.
    public let levelUntil: String?
    /// The path that the conversation counts at.
    public let category: String
    public let markedUnread: Bool
    let left: Bool?

    enum CodingKeys: String, CodingKey {
        case id = "conversation_id"
        case unread, mentions, seen, level, category, left
        case firstUnreadSeq = "first_unread_seq"
        case readSeq = "read_seq"
        case lastSeq = "last_seq"
        case seenSeq = "seen_seq"
        case seenMentions = "seen_mentions"
        case markedUnread = "marked_unread"
        case levelUntil = "level_until"
    }

    /// Whether a path is the category or lies above it. A path that is nil covers everything.
    func isIn(_ path: String?) -> Bool {
        guard let path = path else { return true }
        return category == path || category.hasPrefix(path + "/")
    }
}

/// What is unread, of everything or of the conversations that a category covers.
public struct Numbers: Decodable, Equatable, Sendable {
    /// The number for the badge.
    public let total: Int64
    /// Unread messages that mention the user, in conversations whose level is not none.
    public let mentions: Int64
    /// How many conversations add something to the total.
    public let unreadConversations: Int64
    /// How much of the total the user has not seen.
    public let unseen: Int64
    /// What is unread but kept out of the total by a level, for a grey number; nil for nothing.
    public let muted: Muted?
    /// How much of the total comes from conversations that are marked and have no unread message;
    /// nil for nothing.
    public let marked: Int64?

    public struct Muted: Decodable, Equatable, Sendable {
        public let total: Int64
        public let conversations: Int64
    }

    enum CodingKeys: String, CodingKey {
        case total, mentions, unseen, muted, marked
        case unreadConversations = "unread_conversations"
    }

    static let zero = Numbers(total: 0, mentions: 0, unreadConversations: 0, unseen: 0, muted: nil, marked: nil)
}

/// The badge of the user and the conversations that the server has listed.
public struct BadgeState: Equatable, Sendable {
    public let epoch: String
    public let version: Int64
    /// All numbers of the badge.
    public let numbers: Numbers
    /// By path, the categories with anything to show, and those above them.
    public let categories: [String: Numbers]
    /// True if there are more categories than these, which were the first 500 by name.
    public let moreCategories: Bool
    /// By path, the levels of categories.
    public let levels: [String: String]
    /// By id, without those that the user has left.
    public let conversations: [String: Conversation]

    /// The number for the badge.
    public var total: Int64 { numbers.total }

    /// The numbers of a category with those below it; all 0 if there is nothing.
    public func numbers(of category: String) -> Numbers { categories[category] ?? .zero }

    /// The level that applies to a conversation: its own, or that of the longest path that covers
    /// it, or all.
    public func level(of conversation: Conversation) -> String {
        if conversation.level != "default" { return conversation.level }
        var parts = conversation.category.split(separator: "/")
        while !parts.isEmpty {
            if let level = levels[parts.joined(separator: "/")] { return level }
            parts.removeLast()
        }
        return "all"
    }

    /// Applies a snapshot always, and changes if they are newer. Returns held if nothing applies.
    static func after(_ held: BadgeState?, _ frame: StateFrame) throws -> BadgeState {
        var categories: [String: Numbers] = [:]
        var levels = frame.levels ?? [:]
        var moreCategories = frame.moreCategories ?? false
        var conversations: [String: Conversation] = [:]
        if frame.t == "changes" {
            guard let held = held, held.epoch == frame.epoch else { throw ProtocolError("changes of another epoch") }
            if frame.version <= held.version { return held }
            conversations = held.conversations
            if frame.allCategories != true {
                categories = held.categories
                moreCategories = held.moreCategories
                levels = frame.levels ?? held.levels
            }
        }
        for (path, numbers) in frame.categories {
            categories[path] = numbers == .zero ? nil : numbers
        }
        for one in frame.conversations {
            conversations[one.id] = one.left == true ? nil : one
        }
        return BadgeState(
            epoch: frame.epoch, version: frame.version, numbers: frame.numbers, categories: categories,
            moreCategories: moreCategories, levels: levels, conversations: conversations)
    }
}
