# frozen_string_literal: true

module Heddle
  module Lab
    class History
      # Where a step comes from: the commits between two runs, by the checkout's log and as a link.
      class Origin
        # @param template [String, nil] a URL with {before} and {after}, as https://host/compare/{before}...{after}
        # @raise [UsageError]
        def initialize(template = nil)
          @template = template
          @logs = {}
          return if template.nil? || template.match?(%r{\Ahttps?://.*\{after\}})

          raise UsageError, "--commits takes a URL with {before} and {after}, not #{template.inspect}"
        end

        # @param before [Entry]
        # @param after [Entry]
        # @return [String] which revisions they are
        def range(before, after)
          first, last = before.label, after.label
          return "#{first} and #{last}" unless first == last

          "two runs of #{first}: not Heddle's code, unless it was changed without a commit"
        end

        # @param before [Entry]
        # @param after [Entry]
        # @return [Array<String>, nil] a line for each commit; nil where the checkout does not know the revisions
        def commits(before, after)
          revisions = [before, after].map { |entry| entry["revision"]["git"] }
          return if revisions.any?(&:nil?) || revisions.uniq.one?

          @logs.fetch(revisions) { @logs[revisions] = Checkout.commits(*revisions) }
            &.map { |revision, subject| "#{revision[0, 8]} #{subject}" }
        end

        # @param before [Entry]
        # @param after [Entry]
        # @return [String, nil]
        def url(before, after)
          names = [before, after].map { |entry| entry["revision"].values_at("git", "version").compact.first }
          return if @template.nil? || names.uniq.one?

          @template.gsub(/\{before\}|\{after\}/) { |place| (place == "{before}") ? names.first : names.last }
        end
      end
    end
  end
end
