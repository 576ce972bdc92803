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
    let total: Int64
    let mentions: Int64
    let unreadConversations: Int64?
    let conversations: [Conversation]
    let pingMs: Int64?
    let expiresAt: String?

    enum CodingKeys: String, CodingKey {
        case t, epoch, version, total, mentions, conversations
        case unreadConversations = "unread_conversations"
        case pingMs = "ping_ms"
        case expiresAt = "expires_at"
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
    let expiresAt: String?

    enum CodingKeys: String, CodingKey {
        case t, id, code, message
        case retryMs = "retry_ms"
        case expiresAt = "expires_at"
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

    enum CodingKeys: String, CodingKey {
        case t, id, epoch, version, token, seqs
        case conversationId = "conversation_id"
        case upToSeq = "up_to_seq"
        case fromSeq = "from_seq"
    }

    init(_ t: String) { self.t = t }

    func text() throws -> String {
        String(decoding: try JSONEncoder().encode(self), as: UTF8.self)
    }
}

/// Decodes a frame of the server.
func decode<T: Decodable>(_ type: T.Type, _ text: String) throws -> T {
    try JSONDecoder().decode(type, from: Data(text.utf8))
}
