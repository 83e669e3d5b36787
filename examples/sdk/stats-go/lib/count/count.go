// Package count holds functions that an sdk adapter maps: func(P) (R, error), both as JSON.
package count

import (
	"errors"
	"strings"
	"unicode/utf8"
)

type Text struct {
	Text string `json:"text"`
}

type Counted struct {
	Words      int `json:"words"`
	Characters int `json:"characters"`
}

func Words(given Text) (Counted, error) {
	return Counted{len(strings.Fields(given.Text)), utf8.RuneCountInString(given.Text)}, nil
}

func Longest(given Text) (string, error) {
	longest := ""
	for _, word := range strings.Fields(given.Text) {
		if utf8.RuneCountInString(word) > utf8.RuneCountInString(longest) {
			longest = word
		}
	}
	if longest == "" {
		return "", errors.New("the text has no word")
	}
	return longest, nil
}
