# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # What a run of a bench measured, and a later run did not, or not without failures.
      # @!attribute model [String]
      # @!attribute case [String]
      # @!attribute reason [String]
      Loss = Struct.new(:model, :case, :reason, keyword_init: true) do
        class << self
          # @param before [Summary]
          # @param after [Summary]
          # @return [Array<Loss>] of the cells that the first run measured without a failure
          def all(before, after)
            cells = before.models.product(before.cases).select { |model, name| reason(before, model, name).nil? }
            cells.filter_map do |model, name|
              reason = reason(after, model, name)
              new(model: model, case: name, reason: reason) if reason
            end
          end

          # @param losses [Array<Loss>]
          # @return [Table]
          def table(losses)
            Table.new(title: "No longer measured without a failure", prose: true, columns: %w[model case reason],
              rows: losses.map(&:to_a), notes: [])
          end

          private

          def reason(summary, model, name)
            missing = summary.record.header["missing"].find { |one| one["name"] == model }
            return missing["reason"] if missing

            summary.measured?(model, name) ? summary.troubles(model, name).first : "not measured"
          end
        end

        # @return [String]
        def to_s = "#{model}, #{self.case}: #{reason}"
      end
    end
  end
end
