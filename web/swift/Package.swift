// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "Badged",
    platforms: [.iOS(.v15), .macOS(.v12), .tvOS(.v15), .watchOS(.v8)],
    products: [.library(name: "Badged", targets: ["Badged"])],
    targets: [
        .target(name: "Badged"),
        .testTarget(name: "BadgedTests", dependencies: ["Badged"]),
    ]
)
