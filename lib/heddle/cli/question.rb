# frozen_string_literal: true

require "json"
require_relative "../core/clock"
require_relative "../insight/clean"
require_relative "../insight/folder"
require_relative "../insight/snapshot"

module Heddle
  class CLI
    # No such process, or one that does not listen.
    class Absent < Failure; end
    private_constant :Absent

    # Asks a process. Whatever answers is not trusted: the answer is bounded in time, size and depth.
    class Question
      SECONDS = 80.0
      BYTES = 256 << 20
      LINE = 4 << 20
      LINES = 1_000_000
      DEPTH = 6
      INTEGERS = %w[task parent loop tasks turns ready runs descriptor switches thread_id].freeze
      SECONDS_OF = %w[for left ran was_ready asleep runs_for slept].freeze
      OF_BLOCKS = %w[waits_for awaits may_await].freeze # what a task has that waits for an object
      LAST = "{\"end\":true}\n"
      CHUNK = 1 << 16
      # The answer is none.
      class Garbage < Failure
      end

      # The process answers another user only.
      class Refused < Failure
      end
      private_constant :SECONDS, :BYTES, :LINE, :LINES, :DEPTH, :INTEGERS, :SECONDS_OF, :OF_BLOCKS, :LAST, :CHUNK

      # @param folder [Folder]
      # @param socket [String] path
      def initialize(folder, socket)
        @folder = folder
        @socket = socket
      end

      # @param words [String] "ps", "ps backtraces", "why NUMBER"
      # @return [Insight::Snapshot, nil] nil if nobody listens
      # @raise [Failure]
      def ask(words)
        @until = Clock.now + SECONDS
        connection = @folder.connect(@socket, @until) or return
        begin
          send_words(connection, "#{words}\n")
          rows = lines(connection)
          raise Absent, "#{@socket}: the process ended, or stopped to listen, before it answered" if rows.empty?

          snapshot(rows)
        ensure
          connection.close
        end
      rescue SystemCallError => error
        raise Failure, "#{@socket}: #{error.message}"
      end

      private

      def send_words(connection, words)
        connection.write_nonblock(words)
      rescue IO::WaitWritable
        raise Failure, "#{@socket}: the process takes no question"
      rescue Errno::EPIPE, Errno::ECONNRESET
        nil # it has refused: its reason can still be read
      end

      # Reads all before it parses the rest: the process waits only for so long until its answer is taken.
      #
      # @return [Array<Hash>]
      def lines(connection)
        text = "".b
        rest = 0 # bytes of the line that is not whole
        until text.end_with?(LAST)
          bytes = receive(connection) or break
          line_end = bytes.rindex("\n")
          parse((text + bytes)[/.*/]) if line_end && text.bytesize == rest # the first line
          text << bytes
          rest = line_end ? bytes.bytesize - line_end - 1 : rest + bytes.bytesize
          garbage("a line of more than #{LINE} bytes") if rest > LINE
          garbage("more than #{BYTES} bytes") if text.bytesize > BYTES
        end
        garbage("more than #{LINES} lines") if text.count("\n") > LINES
        text.byteslice(0, text.bytesize - rest).each_line(chomp: true).map { |line| parse(line) }
      end

      def receive(connection)
        bytes = connection.read_nonblock(CHUNK, exception: false)
        return bytes unless bytes == :wait_readable

        left = @until - Clock.now
        raise Failure, "#{@socket}: no whole answer within #{SECONDS.round} s" if left <= 0

        connection.wait_readable(left)
        receive(connection)
      rescue Errno::ECONNRESET
        nil
      end

      def parse(line)
        row = JSON.parse(line.dup.force_encoding(Encoding::UTF_8).scrub("?"), max_nesting: DEPTH)
        garbage("a line that is no object") unless row.is_a?(Hash)
        row
      rescue JSON::ParserError
        garbage("a line that is no JSON")
      end

      def garbage(what) = raise(Garbage, "#{@socket}: this is no answer of Heddle's (#{what})")

      def snapshot(rows)
        process = {}
        loops, tasks, details = [], [], {}
        ruby = reason = nil
        rows.each do |row|
          if row.key?("heddle") then process.merge!(row)
          elsif row.key?("task") then tasks << row
          elsif row.key?("detail") then (details[row["detail"]] ||= {}).update(row)
          elsif row.key?("loop") then loops << row
          elsif row.key?("ruby") then ruby, reason = row.values_at("ruby", "reason")
          elsif row.key?("refused")
            user = Insight::Clean.clean(row["user"])
            raise Refused, "#{@socket}: the process is user #{user}'s, and answers that user only: run heddle as " \
              "that user"
          else
            process.merge!(row)
          end
        end
        garbage("it has no process") unless process["pid"].is_a?(Integer)
        garbage("it ends in the middle") unless process.delete("end")
        Insight::Snapshot.new(process, checked(loops), joined(checked(tasks), details, ruby), hash(ruby), reason&.to_s)
      end

      # What text and tables take for granted.
      def checked(rows)
        rows.each do |row|
          row.each { |key, value| garbage("#{Insight::Clean.clean(key)} is #{value.class}") unless known?(key, value) }
        end
      end

      def known?(key, value)
        case key
        when *INTEGERS then value.is_a?(Integer)
        when *SECONDS_OF then value.is_a?(Numeric)
        when "awaits", "may_await" then value.is_a?(Array) && value.all?(Integer)
        when "backtrace" then value.is_a?(Array) && value.all?(String)
        else value.is_a?(String)
        end
      end

      def joined(tasks, details, ruby)
        places = (hash(ruby) || {})["running"]
        running = places.is_a?(Array) ? places.grep(Hash).to_h { |place| place.values_at("loop", "backtrace") } : {}
        tasks.each do |task|
          if (detail = details[task["task"]])
            detail.delete("detail")
            checked([detail])
            OF_BLOCKS.each { |key| detail.delete(key) } unless task["wait"] == "block" # any more
            task.merge!(detail)
          end
          frames = running[task["loop"]]
          task["backtrace"] ||= frames if task["state"] == "running" && frames.is_a?(Array) && frames.all?(String)
        end
        tasks.uniq! { |task| task["task"] } # else a tree of a few rows could have endless branches
        tasks.sort_by! { |task| task["task"] }
      end

      def hash(ruby) = (ruby if ruby.is_a?(Hash))
    end
    private_constant :Question
  end
end
