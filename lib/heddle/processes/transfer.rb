# frozen_string_literal: true

module Heddle
  class Processes
    # Items, values and errors as bytes, and back.
    module Transfer
      # What user code in marshal_dump and the like raises (a class that an autoload does not find, say), nesting that is too
      # deep, and lengths beyond memory.
      REFUSALS = [StandardError, ScriptError, SystemStackError, NoMemoryError].freeze
      TEXT = 80
      CAUSES = 8
      private_constant :REFUSALS, :TEXT, :CAUSES

      class << self
        # @return [String]
        # @raise [NotMarshalable]
        def dump_item(item, index)
          bounded(Marshal.dump(item))
        rescue *REFUSALS => error
          raise NotMarshalable, "#{label(index, item)} cannot be sent to a worker process: #{error.message}"
        end

        # @return [String]
        # @raise [NotMarshalable]
        def dump_value(value, index, item)
          bounded(Marshal.dump(value))
        rescue *REFUSALS => error
          raise NotMarshalable, "the value of #{label(index, item)}, a #{value.class}, cannot be sent from its worker process: " \
            "#{error.message}. Return what Marshal can dump, or nothing"
        end

        # @return [Object]
        # @raise [NotMarshalable]
        def load_value(payload, index)
          Marshal.load(payload) # rubocop:disable Security/MarshalLoad -- from a child of our own
        rescue *REFUSALS => error
          raise NotMarshalable, "the value of item #{index} cannot be loaded from its worker process: #{error.message}"
        end

        # @return [String]
        def dump_error(error, index, item)
          begin
            chain = bounded(Marshal.dump(chain(error).map { |link| [link, backtrace_of(link)] }))
          rescue *REFUSALS => refusal
            reason = refusal.message
          end
          Marshal.dump([label(index, item), "#{error.class}: #{text { error.message }}", backtrace_of(error), chain, reason])
        end

        # @return [Exception] what the worker raised, with its backtrace there and +caller_lines+ below; or what says that it
        #   cannot be had
        def load_error(payload, caller_lines)
          label, summary, backtrace, chain, reason = Marshal.load(payload) # rubocop:disable Security/MarshalLoad
          begin
            error = link(Marshal.load(chain)) if chain # rubocop:disable Security/MarshalLoad
          rescue *REFUSALS => refusal
            reason = refusal.message
          end
          error ||= NotMarshalable.new("#{label} raised #{summary}, which cannot be sent from its worker process: #{reason}")
          error.set_backtrace([*backtrace, *caller_lines])
          error
        end

        # @return [String] the item as a message names it
        def label(index, item) = "item #{index} (#{text { item.inspect }})"

        private

        def bounded(bytes)
          return bytes if bytes.bytesize <= Frames::LARGEST

          raise TypeError, "its dump takes #{bytes.bytesize} bytes, of #{Frames::LARGEST} at most"
        end

        # A class may have a method `backtrace` of its own.
        def backtrace_of(error)
          lines = error.backtrace
          lines if lines.is_a?(Array) && lines.all?(String)
        rescue *REFUSALS
          nil
        end

        def text
          string = yield.to_s.scrub
          (string.size > TEXT) ? "#{string[0, TEXT]}…" : string
        rescue *REFUSALS => error
          "no text: #{error.class}"
        end

        # The error and its causes.
        def chain(error)
          links = [error]
          links << links.last.cause while links.last.cause && links.size < CAUSES
          links
        end

        def link(pairs)
          pairs.reverse.inject(nil) do |cause, (error, backtrace)|
            error.set_backtrace(backtrace) if backtrace
            cause ? with_cause(error, cause) : error
          end
        end

        # Only raise sets it.
        def with_cause(error, cause)
          raise error, cause: cause
        rescue Exception => raised # rubocop:disable Lint/RescueException
          raised
        end
      end
    end
  end
end
