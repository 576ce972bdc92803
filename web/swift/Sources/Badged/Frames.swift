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
    let expiresInMs: Int64?

    enum CodingKeys: String, CodingKey {
        case t, epoch, version, total, mentions, conversations
        case unreadConversations = "unread_conversations"
        case pingMs = "ping_ms"
        case expiresInMs = "expires_in_ms"
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

    enum CodingKeys: String, CodingKey {
        case t, id, epoch, version, token, seqs
        case conversationId = "conversation_id"
        case upToSeq = "up_to_seq"
        case fromSeq = "from_seq"
    }

    /// The longest id of a conversation, in bytes.
    private static let maxId = 128
    /// More may not fit into a frame.
    private static let maxSeqs = 150

    init(_ t: String) { self.t = t }

    /// Refuses what the server would refuse, or could not read.
    func check() throws {
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
