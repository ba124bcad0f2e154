# frozen_string_literal: true

module Heddle
  module Insight
    # Describes what tasks wait for. An object for which thousands wait is described once.
    #
    # Calls no method of objects that are not Heddle's or Ruby's own: it might wait, or raise.
    class Description
      UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/
      LONGEST = 300 # characters
      HOLDERS = 10
      private_constant :UNPRINTABLE, :LONGEST, :HOLDERS

      # @param text [String] of whatever origin
      # @return [String] valid UTF-8 in one line, without escape sequences and other controls
      def self.clean(text, longest = LONGEST)
        text = text.to_s
        text = text.byteslice(0, 4 * longest) if text.bytesize > 4 * longest
        text = text.dup.force_encoding(Encoding::UTF_8).scrub("?")
        text = text.gsub(UNPRINTABLE) { |character| character.dump[1..-2] } if text.match?(UNPRINTABLE)
        (text.size > longest) ? "#{text[0, longest - 1]}…" : text
      end

      # @param text [String]
      # @return [String] the same in quotes
      def self.quote(text, longest = LONGEST) = "\"#{clean(text, longest)}\""

      # @param queries [Hash{Integer => String}] the statements that tasks run, by the tasks' numbers
      def initialize(queries = {})
        @queries = queries
        @objects = {}.compare_by_identity
      end

      # @param task [Task]
      # @return [Hash{String => Object}, nil] what the task's record does not say: `waits_for`, a text; `awaits`, the
      #   numbers of the tasks that can end its wait; `query`; `name`
      def of(task)
        object = task.blocker
        query = @queries[task.number]
        name = task.name unless Insight.named?(task)
        return unless object || query || name

        detail = object ? (@objects[object] ||= describe(object)).dup : {}
        detail["query"] = query if query
        detail["name"] = Description.clean(name) if name
        detail
      end

      private

      def describe(object)
        case object
        when Task then {"waits_for" => "the end of task #{named(object)}", "awaits" => [object.number]}
        when Run then {"waits_for" => "the end of the tasks of its run"}
        when Thread then {"waits_for" => "the end of thread #{thread(object)}"}
        when Semaphore, ResourcePool then resource(object)
        else {"waits_for" => "a #{kind(object)}"}
        end
      end

      def named(task)
        name = task.name
        name ? "#{task.number} #{Description.quote(name)}" : task.number.to_s
      end

      def thread(thread) = Description.clean(thread.name || thread.inspect)

      def kind(object)
        Description.clean(Module.instance_method(:name).bind_call(::Kernel.instance_method(:class).bind_call(object)) ||
          "object")
      end

      def resource(object)
        {"waits_for" => Description.clean(object.inspect)}
      end
    end
  end
end
