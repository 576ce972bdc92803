// What the samples of the documentation use of an app and of Apple's frameworks that Linux lacks, with the
// declarations of Apple's documentation.

import Badged
import Foundation

struct Listener: BadgeListener {
    func changed(_ state: BadgeState) {}
}

struct Backend: Sendable {
    func badgeToken(fresh: Bool) async throws -> String { "" }
    func put(_ path: String, _ body: [String: String]) {}
}

let listener = Listener()
let backend = Backend()
let api = backend
let user = "ada"
let deviceID = "phone"

class UIApplication {}

enum UIBackgroundFetchResult { case newData, noData, failed }

@MainActor protocol UIApplicationDelegate {
    func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken deviceToken: Data)
    func application(_ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]) async -> UIBackgroundFetchResult
}

final class UNUserNotificationCenter: Sendable {
    static func current() -> UNUserNotificationCenter { UNUserNotificationCenter() }
    func removeDeliveredNotifications(withIdentifiers identifiers: [String]) {}
    func setBadgeCount(_ newBadgeCount: Int) async throws {}
}
