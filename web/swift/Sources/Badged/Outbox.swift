import Foundation

/// Why a command was refused finally.
public struct CommandError: Error, Equatable, Sendable {
    public let code: String
    public let message: String
}

/// Hears how a command ended: with nil it is durable. Its effect comes as a state, before or after.
public typealias Outcome = @Sendable (CommandError?) -> Void

/// The commands without an answer, in order.
struct Outbox {
    private struct Entry {
        let frame: ClientFrame
        let outcome: Outcome?
        /// What a read_all or seen_all stood for when the user asked for it; nil for other commands.
        let covers: BadgeState?
        let isForAll: Bool
    }

    private var entries: [Entry] = []
    private var sent = false

    /// Adds a command under a UUID, with which it takes effect once.
    mutating func add(_ command: ClientFrame, _ outcome: Outcome?, covers: BadgeState? = nil) {
        var frame = command
        frame.id = UUID().uuidString.lowercased()
        entries.append(Entry(frame: frame, outcome: outcome, covers: covers, isForAll: frame.t == "read_all" || frame.t == "seen_all"))
    }

    /// Adds, instead of a read_all or seen_all, a read or seen of each conversation that it is about.
    /// The outcome is that of the last one.
    mutating func addEach(_ all: ClientFrame, _ state: BadgeState?, _ outcome: Outcome?) {
        let reads = all.t == "read_all"
        let each = (state?.conversations.values.filter {
            $0.isIn(all.category) && (reads ? $0.unread > 0 || $0.markedUnread : $0.unread > $0.seen ?? 0)
        } ?? []).sorted { $0.id < $1.id }
        if each.isEmpty { outcome?(nil) }
        for (i, conversation) in each.enumerated() {
            var one = ClientFrame(reads ? "read" : "seen")
            one.conversationId = conversation.id
            one.upToSeq = max(1, conversation.lastSeq) // a room without messages can be marked
            add(one, i == each.count - 1 ? outcome : nil)
        }
    }

    /// The command to send now, or nil: one at a time, to keep their order.
    mutating func next() -> ClientFrame? {
        if sent { return nil }
        guard let first = entries.first else { return nil }
        sent = true
        return first.frame
    }

    /// The command in flight is to be sent again.
    mutating func again() { sent = false }

    /// Handles a final answer.
    mutating func answered(_ answer: Answer) {
        guard let first = entries.first, first.frame.id == answer.id else { return }
        entries.removeFirst()
        sent = false
        if answer.t == "ok" {
            first.outcome?(nil)
        } else {
            first.outcome?(CommandError(code: answer.code ?? "", message: answer.message ?? ""))
        }
    }

    /// The connection is lost. A read_all sent later would read messages that the user has not
    /// seen, so reads replace it.
    mutating func offline() {
        sent = false
        let before = entries
        entries = []
        for entry in before {
            if entry.isForAll {
                addEach(entry.frame, entry.covers, entry.outcome)
            } else {
                entries.append(entry)
            }
        }
    }
}
