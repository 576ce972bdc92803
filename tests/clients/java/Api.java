/** Prints the devices that the sample registers. */
final class Api {
    static void putDevice(String platform, String app, String token) {
        System.out.println("device " + platform + " " + app + " " + token);
    }

    private Api() {}
}
