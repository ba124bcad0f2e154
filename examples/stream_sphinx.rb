# frozen_string_literal: true

# Full-text search by riddle, Sphinx's client, which knows nothing of Heddle::Stream: riddle sends and receives on
# whatever its `connection` returns. Its own timeout covers only the connect, and a server that falls silent, or drips,
# keeps it waiting for ever. Over a stream each read ends in time, and the deadline around a query bounds the query.
#
#   ruby -Ilib examples/stream_sphinx.rb HOST PORT WORDS

require "heddle"
require "riddle"
require "riddle/2.1.0" # what the server understands

# A client whose sockets are streams.
def sphinx(host, port, **timeouts)
  Riddle::Client.new.tap do |client|
    client.connection = ->(_) { Heddle::Stream.connect(host, port, **timeouts) }
  end
end

if $PROGRAM_NAME == __FILE__
  host, port, *words = ARGV
  found = Heddle.deadline(2) { sphinx(host, Integer(port), timeout: 1).query(words.join(" ")) }
  puts "#{found[:total_found]} found"
  found[:matches].each { |match| puts "document #{match[:doc]}, weight #{match[:weight]}" }
end
