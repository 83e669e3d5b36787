module textstats

go 1.18
