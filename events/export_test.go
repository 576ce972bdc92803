package events

// DecodeQuick and DecodeAny are the fast and the strict way to decode.
var (
	DecodeQuick = decodeQuick
	DecodeAny   = decode
)
