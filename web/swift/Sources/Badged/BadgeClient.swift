import Foundation
#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Gives tokens of the user. With expired it returns none that was cached. Called before every
/// connection and before a token expires. If it fails, the client tries again later.
public typealias TokenSource = @Sendable (_ expired: Bool) async throws -> String

/// Hears of the badge.
public protocol BadgeListener: Sendable {
    /// The state has changed.
    func changed(_ state: BadgeState)
    /// The connection was made (a state arrived) or lost.
    func online(_ online: Bool)
    /// The server refused this client, with a code from 4001 to 4004. Only start tries again.
    func refused(code: Int, reason: String)
}

extension BadgeListener {
    public func online(_ online: Bool) {}
    public func refused(code: Int, reason: String) {}
}

/// The live badge of the one user that the tokens name. It keeps its state and its commands while
/// disconnected, and resumes.
public actor BadgeClient {
    private static let connectTimeoutMs: Int64 = 15_000
    /// A connection that lasted so long resets the backoff.
    private static let lasting: TimeInterval = 10
    private static let maxHintMs: Int64 = 3_600_000
    /// Least time between two tokens of a connection: the app may give one that is nearly over.
    private static let minRenewMs: Int64 = 10_000
    /// Foundation's default of 1 MiB is too little: changes list every conversation that changed.
    private static let maxMessageBytes = 16 << 20

    private let url: URL
    private let session: URLSession
    private let tokens: TokenSource
    private let listener: BadgeListener
    private let minBackoffMs: Int64
    private let maxBackoffMs: Int64

    /// The last state of the server, or nil before the first.
    public private(set) var state: BadgeState?
    private var outbox = Outbox()
    private var run: Task<Void, Never>?
    private var socket: URLSessionWebSocketTask?
    private var sending: Task<Void, Never>?
    private var isOnline = false
    private var onlineSince = Date()
    private var expired = false
    private var failures = 0
    private var patienceMs = BadgeClient.connectTimeoutMs
    private var deadline: Task<Void, Never>?
    private var refresh: Task<Void, Never>?
    private var retry: Task<Void, Never>?

    /// A client of the server at url, `https://badges.example.com`. The bound of the random pause
    /// before a reconnect doubles from minBackoffMs to maxBackoffMs.
    public init(
        url: URL, session: URLSession = .shared, tokens: @escaping TokenSource, listener: BadgeListener,
        minBackoffMs: Int64 = 500, maxBackoffMs: Int64 = 30_000
    ) {
        precondition(minBackoffMs >= 1 && maxBackoffMs >= minBackoffMs, "not 1 <= minBackoffMs <= maxBackoffMs")
        self.url = BadgeClient.webSocketURL(url)
        self.session = session
        self.tokens = tokens
        self.listener = listener
        self.minBackoffMs = minBackoffMs
        self.maxBackoffMs = maxBackoffMs
    }

    static func webSocketURL(_ url: URL) -> URL {
        var text = url.absoluteString
        while text.hasSuffix("/") { text.removeLast() }
        if text.hasPrefix("http") { text = "ws" + text.dropFirst(4) }
        return URL(string: text + "/v1/ws") ?? url
    }

    /// Connects, and stays connected. Call it when the app enters the foreground.
    public func start() {
        if run == nil { run = Task { await self.stayConnected() } }
    }

    /// Disconnects. State and commands stay for the next start.
    public func stop() {
        run?.cancel()
        run = nil
        failures = 0
        leave()
    }

    /// The user has read the conversation up to this message. This and the other commands throw
    /// InvalidCommand if a seq is below 1, or an id is empty, longer than 128 bytes, or has control
    /// characters. Nothing is sent then.
    public func read(_ conversationId: String, upToSeq: Int64, outcome: Outcome? = nil) throws {
        var frame = ClientFrame("read")
        frame.conversationId = conversationId
        frame.upToSeq = upToSeq
        try add(frame, outcome)
    }

    /// The conversation counts at least 1 until the next read.
    public func markUnread(_ conversationId: String, outcome: Outcome? = nil) throws {
        var frame = ClientFrame("mark_unread")
        frame.conversationId = conversationId
        try add(frame, outcome)
    }

    /// These messages, at most 150, count again until the next read. Not in rooms.
    public func markUnread(_ conversationId: String, seqs: [Int64], outcome: Outcome? = nil) throws {
        var frame = ClientFrame("mark_unread")
        frame.conversationId = conversationId
        frame.seqs = seqs
        try add(frame, outcome)
    }

    /// The messages of a room from this one on count again until the next read.
    public func markUnread(_ conversationId: String, fromSeq: Int64, outcome: Outcome? = nil) throws {
        var frame = ClientFrame("mark_unread")
        frame.conversationId = conversationId
        frame.fromSeq = fromSeq
        try add(frame, outcome)
    }

    /// The user has read everything, or everything that a category covers. While disconnected this
    /// covers what the client holds.
    public func readAll(_ category: String? = nil, outcome: Outcome? = nil) throws {
        try addForAll("read_all", category, outcome)
    }

    /// The user has seen that there is something up to this message, which stays unread.
    public func seen(_ conversationId: String, upToSeq: Int64, outcome: Outcome? = nil) throws {
        var frame = ClientFrame("seen")
        frame.conversationId = conversationId
        frame.upToSeq = upToSeq
        try add(frame, outcome)
    }

    /// The user has seen everything, or everything that a category covers, as with readAll.
    public func seenAll(_ category: String? = nil, outcome: Outcome? = nil) throws {
        try addForAll("seen_all", category, outcome)
    }

    /// Sets the level of a category (all, mentions, direct_mentions, none; default unsets it) for the
    /// conversations that it covers and that have none of their own, also those to come.
    public func setLevel(_ category: String, _ level: String, outcome: Outcome? = nil) throws {
        var frame = ClientFrame("level")
        frame.category = category
        frame.level = level
        try add(frame, outcome)
    }

    private func addForAll(_ t: String, _ category: String?, _ outcome: Outcome?) throws {
        var frame = ClientFrame(t)
        frame.category = category
        try frame.check()
        if isOnline {
            outbox.add(frame, outcome, covers: state)
        } else {
            outbox.addEach(frame, state, outcome)
        }
        flush()
    }

    private func add(_ frame: ClientFrame, _ outcome: Outcome?) throws {
        try frame.check()
        outbox.add(frame, outcome)
        flush()
    }

    private func flush() {
        guard isOnline, let next = outbox.next() else { return }
        send(next)
    }

    /// Sends a frame after those before. A failure ends the connection. On Linux, only the
    /// asynchronous function of the socket exists.
    private func send(_ frame: ClientFrame) {
        guard let socket = socket, let text = try? frame.text() else { return }
        sending = Task { [sending] in
            await sending?.value
            try? await socket.send(.string(text))
        }
    }

    private func stayConnected() async {
        while !Task.isCancelled {
            let ending = await connect()
            if Task.isCancelled { return }
            if isOnline && -onlineSince.timeIntervalSinceNow > BadgeClient.lasting { failures = 0 }
            leave()
            if (4001...4004).contains(ending.code) {
                run = nil
                listener.refused(code: ending.code, reason: ending.reason)
                return
            }
            if ending.code == 4202 { expired = true }
            let most = min(maxBackoffMs, minBackoffMs << Int64(min(failures, 16)))
            failures += 1
            let pause = min(ending.pauseMs, BadgeClient.maxHintMs) + Int64.random(in: 0...most)
            await BadgeClient.sleep(pause)
        }
    }

    private struct Ending {
        var code = 0
        var reason = ""
        var pauseMs: Int64 = 0
    }

    /// Runs one connection to its end.
    private func connect() async -> Ending {
        patienceMs = BadgeClient.connectTimeoutMs
        guard let token = try? await tokens(expired), !Task.isCancelled else { return Ending() }
        var request = URLRequest(url: url)
        request.setValue("Bearer \(token)", forHTTPHeaderField: "Authorization")
        request.setValue("badge.v1", forHTTPHeaderField: "Sec-WebSocket-Protocol")
        let socket = session.webSocketTask(with: request)
        socket.maximumMessageSize = BadgeClient.maxMessageBytes
        self.socket = socket
        sending = nil
        expect(socket)
        socket.resume()
        var hello = ClientFrame("hello")
        hello.epoch = state?.epoch
        hello.version = state?.version
        send(hello)
        do {
            while true {
                let message = try await socket.receive()
                guard self.socket === socket else { return Ending() }
                guard case .string(let text) = message else { throw ProtocolError("a binary frame") }
                if let ending = try receive(text, from: socket) { return ending }
            }
        } catch {
            return Ending(code: socket.closeCode.rawValue, reason: String(describing: error), pauseMs: 0)
        }
    }

    private func receive(_ text: String, from socket: URLSessionWebSocketTask) throws -> Ending? {
        let t = try decode(AnyFrame.self, text).t
        if isOnline { expect(socket) }
        switch t {
        case "snapshot", "changes":
            try apply(try decode(StateFrame.self, text))
        case "ok", "error":
            answered(try decode(Answer.self, text))
        case "ping":
            send(ClientFrame("pong"))
        case "bye":
            let bye = try decode(Bye.self, text)
            return Ending(code: bye.code, reason: bye.reason ?? "", pauseMs: bye.reconnectMs ?? 0)
        default:
            break // a type of a later server
        }
        return nil
    }

    private func apply(_ frame: StateFrame) throws {
        let next = try BadgeState.after(state, frame)
        if next != state {
            state = next
            listener.changed(next)
        }
        if let pingMs = frame.pingMs { patienceMs = pingMs * 5 / 2 }
        if isOnline { return }
        isOnline = true
        onlineSince = Date()
        expired = false
        if let socket = socket { expect(socket) }
        listener.online(true)
        if let leftMs = frame.expiresInMs { renew(within: leftMs, after: 0) }
        flush()
    }

    private func answered(_ answer: Answer) {
        if answer.id == "auth" {
            if let leftMs = answer.expiresInMs { renew(within: leftMs, after: BadgeClient.minRenewMs) }
            return
        }
        if let pauseMs = answer.retryMs, pauseMs > 0 {
            retry = Task {
                await BadgeClient.sleep(min(pauseMs, BadgeClient.maxHintMs))
                if !Task.isCancelled { self.sendAgain() }
            }
            return
        }
        outbox.answered(answer)
        flush()
    }

    private func sendAgain() {
        outbox.again()
        flush()
    }

    /// Sends a fresh token after 75 to 85 % of the time left, and after leastMs; if that fails, 4202 follows.
    private func renew(within leftMs: Int64, after leastMs: Int64) {
        guard let from = socket else { return }
        let pauseMs = max(leastMs, Int64(Double(leftMs) * Double.random(in: 0.75...0.85)))
        refresh?.cancel()
        refresh = Task {
            await BadgeClient.sleep(pauseMs)
            if !Task.isCancelled { await self.renew(from) }
        }
    }

    private func renew(_ from: URLSessionWebSocketTask) async {
        let token = try? await tokens(true)
        guard from === socket else { return }
        guard let token = token else {
            expired = true
            return
        }
        var auth = ClientFrame("auth")
        auth.id = "auth"
        auth.token = token
        send(auth)
    }

    /// Ends the connection unless a frame comes in time.
    private func expect(_ from: URLSessionWebSocketTask) {
        deadline?.cancel()
        let patience = patienceMs
        deadline = Task {
            await BadgeClient.sleep(patience)
            if !Task.isCancelled { from.cancel(with: .goingAway, reason: nil) }
        }
    }

    private func leave() {
        deadline?.cancel()
        refresh?.cancel()
        retry?.cancel()
        socket?.cancel(with: .normalClosure, reason: nil)
        socket = nil
        outbox.offline()
        if isOnline {
            isOnline = false
            listener.online(false)
        }
    }

    private static func sleep(_ ms: Int64) async {
        try? await Task.sleep(nanoseconds: UInt64(max(0, ms)) * 1_000_000)
    }
}
