import Foundation
import XCTest

@testable import Badged

/// The golden frames, which the server and the other clients are tested with too.
private func golden(_ name: String) throws -> String {
    var root = URL(fileURLWithPath: #filePath)
    for _ in 0..<4 { root.deleteLastPathComponent() }
    return try String(contentsOf: root.appendingPathComponent("sdk/testdata/frames/\(name).json"), encoding: .utf8)
}

/// A frame as JSON, whatever the order of its fields.
private func fields(_ text: String) throws -> NSDictionary {
    try XCTUnwrap(JSONSerialization.jsonObject(with: Data(text.utf8)) as? NSDictionary)
}

final class FramesTests: XCTestCase {
    func testStatesOfTheServer() throws {
        var state: BadgeState?
        for name in ["snapshot", "snapshot-empty", "snapshot-muted"] {
            let frame = try decode(StateFrame.self, try golden(name))
            state = try BadgeState.after(state, frame)
            XCTAssertEqual(state?.version, frame.version, name)
            XCTAssertEqual(state?.conversations.count, frame.conversations.count, name)
        }
        let large = try BadgeState.after(nil, try decode(StateFrame.self, try golden("snapshot-large-seqs")))
        XCTAssertTrue(large.conversations.values.contains { $0.lastSeq > 1 << 53 })
    }

    func testALevelThatEndsHasTheTime() throws {
        let muted = try BadgeState.after(nil, try decode(StateFrame.self, try golden("snapshot-muted-until")))
        XCTAssertEqual(muted.conversations["standup"]?.levelUntil, "2026-03-02T09:00:00Z")
        let ended = try BadgeState.after(muted, try decode(StateFrame.self, try golden("changes-level-ended")))
        XCTAssertNotNil(ended.conversations["standup"])
        XCTAssertNil(ended.conversations["standup"]?.levelUntil)
        XCTAssertEqual(ended.conversations["incident"]?.levelUntil, "2026-03-01T18:30:00.25Z")
    }

    func testChangesApplyToTheirEpochOnly() throws {
        let changes = try decode(StateFrame.self, try golden("changes"))
        XCTAssertThrowsError(try BadgeState.after(nil, changes))
    }

    func testCategoriesOfChangesAreMerged() throws {
        let all = try BadgeState.after(nil, try decode(StateFrame.self, try golden("snapshot-paths")))
        XCTAssertEqual(all.categories.count, 6)
        XCTAssertEqual(all.numbers(of: "games").muted?.total, 5)
        XCTAssertEqual(all.numbers(of: "elsewhere").total, 0)
        let read = try BadgeState.after(all, try decode(StateFrame.self, try golden("changes-paths")))
        XCTAssertNil(read.categories["games/lfg/eu"])
        XCTAssertEqual(read.categories["acme"], all.categories["acme"])
        XCTAssertEqual(read.levels, all.levels)
        let loud = try BadgeState.after(read, try decode(StateFrame.self, try golden("changes-paths-levels")))
        XCTAssertEqual(loud.levels, ["acme/general": "all", "games": "none"])
        let resumed = try BadgeState.after(loud, try decode(StateFrame.self, try golden("changes-paths-all")))
        XCTAssertEqual(resumed.categories.keys.sorted(), ["acme", "acme/random"])
        XCTAssertTrue(resumed.levels.isEmpty)
    }

    func testTheLevelOfTheLongestPathApplies() throws {
        let state = try BadgeState.after(nil, try decode(StateFrame.self, try golden("snapshot-paths")))
        let levels = state.conversations.mapValues { state.level(of: $0) }
        XCTAssertEqual(levels, ["general": "all", "random": "mentions", "raid": "none", "looking": "all"])
    }

    func testAnswersOfTheServer() throws {
        for name in ["ok-uuid", "error", "error-final", "error-rate-limited"] {
            XCTAssertFalse(try decode(AnyFrame.self, try golden(name)).t.isEmpty, name)
        }
        XCTAssertGreaterThan(try decode(Bye.self, try golden("bye")).code, 4000)
    }

    func testFramesOfTheClient() throws {
        var read = ClientFrame("read")
        let want = try fields(try golden("read-uuid-large-seq"))
        read.id = want["id"] as? String
        read.conversationId = want["conversation_id"] as? String
        read.upToSeq = (want["up_to_seq"] as? NSNumber)?.int64Value
        XCTAssertEqual(try fields(try read.text()), want)

        var mark = ClientFrame("mark_unread")
        let from = try fields(try golden("mark_unread-from"))
        mark.id = from["id"] as? String
        mark.conversationId = from["conversation_id"] as? String
        mark.fromSeq = (from["from_seq"] as? NSNumber)?.int64Value
        XCTAssertEqual(try fields(try mark.text()), from)
    }

    func testAReadOfEverythingBecomesReadsWhenTheConnectionIsLost() throws {
        let state = try BadgeState.after(nil, try decode(StateFrame.self, try golden("snapshot")))
        var outbox = Outbox()
        outbox.add(ClientFrame("read_all"), nil, covers: state)
        XCTAssertEqual(outbox.next()?.t, "read_all")
        outbox.offline()
        XCTAssertEqual(outbox.next()?.t, "read")
        XCTAssertNil(outbox.next(), "one at a time")
    }

    func testASeenOfACategoryBecomesThoseOfItsConversations() throws {
        let state = try BadgeState.after(nil, try decode(StateFrame.self, try golden("snapshot-paths")))
        var outbox = Outbox()
        var all = ClientFrame("seen_all")
        all.category = "games"
        outbox.add(all, nil, covers: state)
        outbox.offline()
        for id in ["looking", "raid"] {
            let seen = try XCTUnwrap(outbox.next())
            XCTAssertEqual(seen.t, "seen")
            XCTAssertEqual(seen.conversationId, id)
            outbox.answered(Answer(t: "ok", id: seen.id, code: nil, message: nil, retryMs: nil, expiresInMs: nil))
        }
        XCTAssertNil(outbox.next())
    }

    func testWhatNoServerTakesIsRefused() throws {
        for id in ["", String(repeating: "é", count: 65), "a\u{0}b", "a\nb"] {
            var frame = ClientFrame("mark_unread")
            frame.conversationId = id
            XCTAssertThrowsError(try frame.check(), id)
        }
        for (upToSeq, seqs) in [(0, nil), (-1, nil), (1, []), (1, [0]), (1, Array(repeating: 1, count: 151))] as [(Int64, [Int64]?)] {
            var frame = ClientFrame("read")
            frame.conversationId = String(repeating: "é", count: 64)
            try frame.check()
            frame.upToSeq = upToSeq
            frame.seqs = seqs
            XCTAssertThrowsError(try frame.check())
        }
    }

    func testWhatIsNoCategoryIsRefused() throws {
        for category in ["", "/acme", "acme/", "acme//general", "a/b/c/d/e/f/g/h/i", String(repeating: "é", count: 65), "a\nb"] {
            for t in ["read_all", "seen_all", "level"] {
                var frame = ClientFrame(t)
                frame.category = category
                frame.level = "none"
                XCTAssertThrowsError(try frame.check(), category)
                frame.category = "acme/general"
                try frame.check()
            }
        }
        var frame = ClientFrame("level")
        frame.category = "acme"
        frame.level = "loud"
        XCTAssertThrowsError(try frame.check())
    }

    func testURLs() throws {
        for (given, want) in [
            ("https://badges.test", "wss://badges.test/v1/ws"), ("http://localhost:8080/base/", "ws://localhost:8080/base/v1/ws"),
        ] {
            XCTAssertEqual(BadgeClient.webSocketURL(try XCTUnwrap(URL(string: given))).absoluteString, want)
        }
    }
}
