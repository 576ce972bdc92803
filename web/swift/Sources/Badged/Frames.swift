import Foundation

/// A frame that breaks the protocol.
struct ProtocolError: Error {
    let message: String
    init(_ message: String) { self.message = message }
}

/// A snapshot, or changes.
struct StateFrame: Decodable {
    let t: String
    let epoch: String
    let version: Int64
    let numbers: Numbers
    let categories: [String: Numbers]
    let moreCategories: Bool?
    let allCategories: Bool?
    let levels: [String: String]?
    let conversations: [Conversation]
    let pingMs: Int64?
    let expiresInMs: Int64?

    enum CodingKeys: String, CodingKey {
        case t, epoch, version, categories, levels, conversations
        case moreCategories = "more_categories"
        case allCategories = "all_categories"
        case pingMs = "ping_ms"
        case expiresInMs = "expires_in_ms"
    }

    init(from decoder: Decoder) throws {
        let fields = try decoder.container(keyedBy: CodingKeys.self)
        t = try fields.decode(String.self, forKey: .t)
        epoch = try fields.decode(String.self, forKey: .epoch)
        version = try fields.decode(Int64.self, forKey: .version)
        numbers = try Numbers(from: decoder) // its fields are those of the frame
        categories = try fields.decode([String: Numbers].self, forKey: .categories)
        moreCategories = try fields.decodeIfPresent(Bool.self, forKey: .moreCategories)
        allCategories = try fields.decodeIfPresent(Bool.self, forKey: .allCategories)
        levels = try fields.decodeIfPresent([String: String].self, forKey: .levels)
        conversations = try fields.decode([Conversation].self, forKey: .conversations)
        pingMs = try fields.decodeIfPresent(Int64.self, forKey: .pingMs)
        expiresInMs = try fields.decodeIfPresent(Int64.self, forKey: .expiresInMs)
    }
}

/// What comes first of every frame: its type.
struct AnyFrame: Decodable {
    let t: String
}

/// The answer to a command: ok, or error.
struct Answer: Decodable {
    let t: String
    let id: String?
    let code: String?
    let message: String?
    let retryMs: Int64?
    let expiresInMs: Int64?

    enum CodingKeys: String, CodingKey {
        case t, id, code, message
        case retryMs = "retry_ms"
        case expiresInMs = "expires_in_ms"
    }
}

/// The reason why the server ends the connection.
struct Bye: Decodable {
    let code: Int
    let reason: String?
    let reconnectMs: Int64?

    enum CodingKeys: String, CodingKey {
        case code, reason
        case reconnectMs = "reconnect_ms"
    }
}

/// An argument that no command can have.
public struct InvalidCommand: Error, Equatable, Sendable {
    public let message: String
}

/// A frame of the client.
struct ClientFrame: Encodable, Equatable {
    var t: String
    var id: String?
    var epoch: String?
    var version: Int64?
    var token: String?
    var conversationId: String?
    var upToSeq: Int64?
    var seqs: [Int64]?
    var fromSeq: Int64?
    var category: String?
    var level: String?

    enum CodingKeys: String, CodingKey {
        case t, id, epoch, version, token, seqs, category, level
        case conversationId = "conversation_id"
        case upToSeq = "up_to_seq"
        case fromSeq = "from_seq"
    }

    /// The longest id of a conversation, in bytes.
    private static let maxId = 128
    /// More may not fit into a frame.
    private static let maxSeqs = 150
    /// The longest category, in bytes, with its parts and their characters.
    private static let maxCategory = 255
    private static let maxParts = 8
    private static let maxPart = 64
    private static let levels = ["default", "all", "mentions", "direct_mentions", "none"]

    init(_ t: String) { self.t = t }

    /// Refuses what the server would refuse, or could not read.
    func check() throws {
        switch t {
        case "read_all", "seen_all": try checkCategory()
        case "level": try checkLevel()
        default: try checkConversation()
        }
    }

    private func checkCategory() throws {
        guard let category = category else { return }
        let control = category.unicodeScalars.contains { $0.properties.generalCategory == .control }
        let parts = category.split(separator: "/", omittingEmptySubsequences: false)
        let bad = parts.contains { $0.isEmpty || $0.unicodeScalars.count > ClientFrame.maxPart }
        if bad || control || category.utf8.count > ClientFrame.maxCategory || parts.count > ClientFrame.maxParts {
            throw InvalidCommand(
                message: "a category has 1 to \(ClientFrame.maxParts) parts of 1 to \(ClientFrame.maxPart) characters with a slash between each two, "
                    + "and at most \(ClientFrame.maxCategory) bytes, is \(category.prefix(40))")
        }
    }

    private func checkLevel() throws {
        try checkCategory()
        if !ClientFrame.levels.contains(level ?? "") {
            throw InvalidCommand(message: "a level is one of \(ClientFrame.levels), is \(level ?? "")")
        }
    }

    private func checkConversation() throws {
        let id = conversationId ?? ""
        let control = id.unicodeScalars.contains { $0.properties.generalCategory == .control }
        if id.isEmpty || id.utf8.count > ClientFrame.maxId || control {
            throw InvalidCommand(message: "a conversation has 1 to \(ClientFrame.maxId) bytes without control characters, is \(id.prefix(40))")
        }
        if let seqs = seqs, seqs.isEmpty || seqs.count > ClientFrame.maxSeqs {
            throw InvalidCommand(message: "not 1 to \(ClientFrame.maxSeqs) seqs")
        }
        for seq in [upToSeq, fromSeq].compactMap({ $0 }) + (seqs ?? []) where seq < 1 {
            throw InvalidCommand(message: "a seq must be at least 1, is \(seq)")
        }
    }

    func text() throws -> String {
        String(decoding: try JSONEncoder().encode(self), as: UTF8.self)
    }
}

/// Decodes a frame of the server.
func decode<T: Decodable>(_ type: T.Type, _ text: String) throws -> T {
    try JSONDecoder().decode(type, from: Data(text.utf8))
}
