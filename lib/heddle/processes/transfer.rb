# frozen_string_literal: true

module Heddle
  class Processes
    # Turns items, values and errors into contents of frames, and back.
    #
    # The contents of a frame are dumped together, which for short ones costs a fraction. What Marshal dumps together
    # shares what it refers to, and no item may share an object with another one: so only what refers to nothing is a
    # content itself. Everything else has a dump of its own.
    module Transfer
      # The dump of an object.
      Dumped = Struct.new(:bytes)

      # The error of an item, in place of its value.
      Failure = Struct.new(:bytes)

      # Errors of Marshal: those of user code in marshal_dump and the like (an autoload that does not find its class,
      # say), too deep nesting, and lengths beyond memory.
      REFUSALS = [StandardError, ScriptError, SystemStackError, NoMemoryError].freeze
      TEXT = 80
      CAUSES = 8
      private_constant :REFUSALS, :TEXT, :CAUSES

      class << self
        # @return [Integer] about as many bytes as it takes
        def bytesize(content)
          case content
          when Dumped, Failure then content.bytes.bytesize
          when String then content.bytesize
          when Symbol then content.name.bytesize
          when Integer then content.size
          else 8
          end
        end

        # @return [Object] the content
        # @raise [NotMarshalable]
        def dump_item(item, index)
          content(item)
        rescue *REFUSALS => error
          raise NotMarshalable,
            "#{label(index, item)} cannot be sent to a worker process: #{error.message}. The elements of an Array " \
            "need not be sent: pass one, if the items are not endless"
        end

        # @return [Object] the content
        # @raise [NotMarshalable]
        def dump_value(value, index, item)
          content(value)
        rescue *REFUSALS => error
          raise NotMarshalable,
            "the value of #{label(index, item)}, of the class #{value.class}, cannot be sent from its worker " \
            "process: #{error.message}. Return nil, or a value that Marshal can dump"
        end

        # @return [Object] the item or value
        def load(content)
          return content unless Dumped === content # perhaps a BasicObject

          Marshal.load(content.bytes) # rubocop:disable Security/MarshalLoad -- from our parent or a child of our own
        end

        # @return [Object] the value
        # @raise [NotMarshalable]
        def load_value(content, index)
          load(content)
        rescue *REFUSALS => error
          raise NotMarshalable, "the value of item #{index} cannot be loaded from its worker process: #{error.message}"
        end

        # @return [Failure]
        def dump_error(error, index, item)
          begin
            chain = bounded(Marshal.dump(chain(error).map { |link| [link, backtrace_of(link)] }))
          rescue *REFUSALS => refusal
            reason = refusal.message
          end
          Failure.new(Marshal.dump([label(index, item), "#{error.class}: #{text { error.message }}",
            backtrace_of(error), chain, reason]))
        end

        # @return [Exception] the worker's error, with its backtrace from the worker above +caller_lines+; or a
        #   {NotMarshalable} in its place
        def load_error(failure, caller_lines)
          label, summary, backtrace, chain, reason = Marshal.load(failure.bytes) # rubocop:disable Security/MarshalLoad
          begin
            error = link(Marshal.load(chain)) if chain # rubocop:disable Security/MarshalLoad
          rescue *REFUSALS => refusal
            reason = refusal.message
          end
          error ||= NotMarshalable.new("#{label} raised #{summary}, which cannot be sent from its " \
            "worker process: #{reason}")
          error.set_backtrace([*backtrace, *caller_lines])
          error
        end

        # @return [String] the item, for messages
        def label(index, item) = "item #{index} (#{text { item.inspect }})"

        private

        # The copy of a String is another object where the same String comes twice.
        def content(object)
          return bounded(object.dup) if object.instance_of?(String) && object.instance_variables.empty?

          case object
          when Integer, nil, true, false, Symbol, Float then object
          else Dumped.new(bounded(Marshal.dump(object)))
          end
        end

        def bounded(bytes)
          return bytes if bytes.bytesize <= Frames::LARGEST

          raise TypeError, "its dump has #{bytes.bytesize} bytes, more than #{Frames::LARGEST}"
        end

        # A class may define a method `backtrace` of its own.
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

        # Only `raise` sets a cause.
        def with_cause(error, cause)
          raise error, cause: cause
        rescue Exception => raised # rubocop:disable Lint/RescueException
          raised
        end
      end
    end
  end
end
