// swift-tools-version:5.9
import PackageDescription

let badged = Target.Dependency.product(name: "Badged", package: "swift")

let package = Package(
    name: "programs",
    platforms: [.macOS(.v12)],
    dependencies: [.package(path: "../../../../web/swift")],
    targets: [
        .executableTarget(name: "Conformance", dependencies: [badged], path: "Conformance"),
        // Stubs.swift, and Samples.swift, into which .ci/swift writes the samples of the documentation.
        .target(name: "Samples", dependencies: [badged], path: "Samples"),
    ]
)
