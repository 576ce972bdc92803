// The Swift client as a program for `badged conformance`; see docs/conformance.md.

import Badged
import Foundation
#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

let environment = ProcessInfo.processInfo.environment
let output = NSLock()

@Sendable func emit(_ fields: [String: Any]) {
    guard let line = try? JSONSerialization.data(withJSONObject: fields) else { fatalError("no JSON: \(fields)") }
    output.lock()
    defer { output.unlock() }
    FileHandle.standardOutput.write(line + Data("\n".utf8))
}

struct Screen: BadgeListener {
    func changed(_ state: BadgeState) {
        emit([
            "version": state.version, "total": state.total, "unread_conversations": state.numbers.unreadConversations,
            "levels": state.levels,
            "conversations": state.conversations.mapValues {
                ["unread": $0.unread, "mentions": $0.mentions, "marked_unread": $0.markedUnread, "level_until": $0.levelUntil ?? ""] as [String: Any]
            },
            "categories": state.categories.mapValues {
                [
                    "total": $0.total, "mentions": $0.mentions, "unread_conversations": $0.unreadConversations,
                    "unseen": $0.unseen, "marked": $0.marked ?? 0,
                    "muted": ["total": $0.muted?.total ?? 0, "conversations": $0.muted?.conversations ?? 0],
                ] as [String: Any]
            },
        ])
    }

    func refused(code: Int, reason: String) {
        emit(["refused": code])
    }
}

/// Gives the second token from the first time that an expired one is replaced.
actor Tokens {
    private var token = environment["BADGED_TOKEN"]!

    func next(_ expired: Bool) -> String {
        if expired { token = environment["BADGED_FRESH_TOKEN"]! }
        return token
    }
}

struct Command: Decodable {
    let `do`: String
    let n: Int
    let conversation_id: String?
    let up_to_seq: String?
    let category: String?
    let level: String?
}

func run(_ command: Command, _ client: BadgeClient) async throws {
    let outcome: Outcome = { error in
        if let error = error {
            emit(["failed": command.n, "code": error.code])
        } else {
            emit(["done": command.n])
        }
    }
    let conversation = command.conversation_id ?? ""
    let seq = Int64(command.up_to_seq ?? "") ?? 0
    switch command.do {
    case "read": try await client.read(conversation, upToSeq: seq, outcome: outcome)
    case "read_all": try await client.readAll(command.category, outcome: outcome)
    case "mark_unread": try await client.markUnread(conversation, outcome: outcome)
    case "seen": try await client.seen(conversation, upToSeq: seq, outcome: outcome)
    case "seen_all": try await client.seenAll(command.category, outcome: outcome)
    case "level": try await client.setLevel(command.category ?? "", command.level ?? "", outcome: outcome)
    default: fatalError("no command \(command)")
    }
}

let way = environment["BADGED_AUTH"] ?? ""
if way == "subprotocol" || way == "hello" { emit(["unsupported": "a token by the way \(way)"]) }
if environment["BADGED_TRANSPORT"] == "sse" { emit(["unsupported": "server-sent events"]) }
if environment["BADGED_STORE"] != "" { emit(["unsupported": "a store"]) }

let configuration = URLSessionConfiguration.ephemeral
#if canImport(FoundationNetworking)
// On Linux, URLSession asks for `keep-alive` unless told otherwise, which is no upgrade.
configuration.httpAdditionalHeaders = ["Connection": "Upgrade"]
#endif
let tokens = Tokens()
let backoff = Int64(environment["BADGED_BACKOFF_MS"]!)!
let client = BadgeClient(
    url: URL(string: environment["BADGED_URL"]!)!, session: URLSession(configuration: configuration),
    tokens: { await tokens.next($0) }, listener: Screen(), minBackoffMs: backoff, maxBackoffMs: backoff)
await client.start()

let lines = AsyncStream<String> { lines in
    Thread.detachNewThread {
        while let line = readLine() { lines.yield(line) }
        lines.finish()
    }
}
for await line in lines {
    let command = try JSONDecoder().decode(Command.self, from: Data(line.utf8))
    do {
        try await run(command, client)
    } catch is InvalidCommand {
        emit(["failed": command.n, "code": "invalid"])
    }
}
await client.stop()
