package stream

import (
	"math"
	"math/rand/v2"
)

// alias draws numbers from 0 to n-1 with given weights in constant time
// (Vose, "A linear algorithm for generating random numbers with a given
// distribution", 1991).
type alias struct {
	keep  []float32
	other []int32
}

// newAlias returns an alias with the weights 1/(k+1)^s of Zipf's law.
func newAlias(n int, s float64) alias {
	weights := make([]float64, n)
	var sum float64
	for k := range weights {
		weights[k] = math.Pow(float64(k+1), -s)
		sum += weights[k]
	}
	a := alias{make([]float32, n), make([]int32, n)}
	var small, large []int32
	for k := range weights {
		weights[k] *= float64(n) / sum
		if weights[k] < 1 {
			small = append(small, int32(k))
		} else {
			large = append(large, int32(k))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		l, g := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		a.keep[l], a.other[l] = float32(weights[l]), g
		weights[g] -= 1 - weights[l]
		if weights[g] < 1 {
			large = large[:len(large)-1]
			small = append(small, g)
		}
	}
	for _, k := range append(small, large...) { // all of weight 1, up to rounding
		a.keep[k], a.other[k] = 1, k
	}
	return a
}

func (a alias) draw(random *rand.Rand) int32 {
	k := random.Int32N(int32(len(a.keep))) //nolint:gosec // few millions
	if random.Float32() < a.keep[k] {
		return k
	}
	return a.other[k]
}
